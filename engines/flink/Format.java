package tidegauge.flink;

import java.io.IOException;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.base.TypeSerializerSingleton;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;
import tidegauge.Row;

/** What the serializers of this engine have in common: values of Avro's primitive types. */
abstract class Format<T> extends TypeSerializerSingleton<T> {
    private static final long serialVersionUID = 1;

    @Override
    public boolean isImmutableType() {
        return false;
    }

    @Override
    public T createInstance() {
        return null;
    }

    @Override
    public T copy(T from, T reuse) {
        return copy(from);
    }

    @Override
    public int getLength() {
        return -1;
    }

    @Override
    public T deserialize(T reuse, DataInputView in) throws IOException {
        return deserialize(in);
    }

    @Override
    public void copy(DataInputView in, DataOutputView out) throws IOException {
        serialize(deserialize(in), out);
    }

    static void writeValues(Object[] values, DataOutputView out) throws IOException {
        out.writeShort(values == null ? -1 : values.length);
        if (values == null) return;
        for (var value : values) Row.writeValue(value, out);
    }

    static Object[] readValues(DataInputView in) throws IOException {
        var count = in.readShort();
        if (count < 0) return null;
        var values = new Object[count];
        for (var i = 0; i < count; i++) values[i] = Row.readValue(in);
        return values;
    }

    static <S> void writeAll(S[] all, TypeSerializer<S> each, DataOutputView out)
            throws IOException {
        out.writeInt(all.length);
        for (var one : all) {
            out.writeBoolean(one != null);
            if (one != null) each.serialize(one, out);
        }
    }
}
