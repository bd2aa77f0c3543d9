package tidegauge.flink;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.List;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.EncoderFactory;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.table.data.RowData;

/** Encodes a row as a value in Avro's single-object encoding. */
final class RecordWriter implements SerializationSchema<RowData> {
    private static final long serialVersionUID = 1L;

    private final String schema;
    private final String[] columns;
    private transient Layout layout;
    private transient ByteArrayOutputStream bytes;
    private transient BinaryEncoder encoder;

    RecordWriter(String schema, List<String> columns) {
        this.schema = schema;
        this.columns = columns.toArray(new String[0]);
    }

    @Override
    public void open(InitializationContext context) {
        layout = new Layout(schema, Arrays.asList(columns));
        bytes = new ByteArrayOutputStream(256);
    }

    @Override
    public byte[] serialize(RowData row) {
        try {
            bytes.reset();
            bytes.write(layout.header);
            encoder = EncoderFactory.get().directBinaryEncoder(bytes, encoder);
            for (int at = 0; at < layout.types.length; at++) {
                write(at, row);
            }
            encoder.flush();
            return bytes.toByteArray();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private void write(int at, RowData row) throws IOException {
        int from = layout.column[at];
        boolean isNull = from < 0 || row.isNullAt(from);
        int nullBranch = layout.nullBranch[at];
        if (isNull && nullBranch < 0) {
            throw new IllegalStateException(
                    layout.names[at] + " is null, but its schema requires a value");
        }
        if (nullBranch >= 0) {
            encoder.writeIndex(isNull ? nullBranch : 1 - nullBranch);
        }
        if (!isNull) {
            writeValue(at, row, from);
        }
    }

    private void writeValue(int at, RowData row, int from) throws IOException {
        switch (layout.types[at]) {
            case STRING:
                encoder.writeBytes(row.getString(from).toBytes());
                break;
            case INT:
                encoder.writeInt(row.getInt(from));
                break;
            case LONG:
                encoder.writeLong(row.getLong(from));
                break;
            case FLOAT:
                encoder.writeFloat(row.getFloat(from));
                break;
            case DOUBLE:
                encoder.writeDouble(row.getDouble(from));
                break;
            case BOOLEAN:
                encoder.writeBoolean(row.getBoolean(from));
                break;
            default:
                throw new IllegalArgumentException("unsupported Avro type: " + layout.types[at]);
        }
    }
}
