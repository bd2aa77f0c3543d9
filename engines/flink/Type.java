package tidegauge.flink;

import org.apache.flink.api.common.serialization.SerializerConfig;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeutils.TypeSerializer;

/** A class of this engine as a type of Flink. */
final class Type<T> extends TypeInformation<T> {
    private static final long serialVersionUID = 1;
    static final Type<Event> EVENT = new Type<>(Event.class, EventFormat.INSTANCE);
    static final Type<Group> GROUP = new Type<>(Group.class, Group.OfGroup.INSTANCE);

    private final Class<T> type;
    private final Format<T> format;

    private Type(Class<T> type, Format<T> format) {
        this.type = type;
        this.format = format;
    }

    @Override
    public boolean isBasicType() {
        return false;
    }

    @Override
    public boolean isTupleType() {
        return false;
    }

    @Override
    public int getArity() {
        return 1;
    }

    @Override
    public int getTotalFields() {
        return 1;
    }

    @Override
    public Class<T> getTypeClass() {
        return type;
    }

    @Override
    public boolean isKeyType() {
        return false;
    }

    @Override
    public TypeSerializer<T> createSerializer(SerializerConfig config) {
        return format;
    }

    @Override
    public String toString() {
        return type.getSimpleName();
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Type<?> one && one.type == type;
    }

    @Override
    public int hashCode() {
        return type.hashCode();
    }

    @Override
    public boolean canEqual(Object other) {
        return other instanceof Type;
    }
}
