package tidegauge.flink;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import org.apache.avro.Schema;
import org.apache.avro.SchemaNormalization;

/** A schema and its mapping to the columns of a table, used for reading and writing. */
final class Layout {
    static final int HEADER_BYTES = 10;

    /** C3 01 and the fingerprint of the schema. */
    final byte[] header;
    final String[] names;
    final Schema.Type[] types;
    /** Index of the null branch of a nullable field's union, by field; -1 for other fields. */
    final int[] nullBranch;
    /** Column index by field; -1 if the table does not have it. */
    final int[] column;

    Layout(String text, List<String> columns) {
        Schema schema = new Schema.Parser().parse(text);
        header = ByteBuffer.allocate(HEADER_BYTES)
                .order(ByteOrder.LITTLE_ENDIAN)
                .put((byte) 0xC3)
                .put((byte) 0x01)
                .putLong(SchemaNormalization.parsingFingerprint64(schema))
                .array();
        int size = schema.getFields().size();
        names = new String[size];
        types = new Schema.Type[size];
        nullBranch = new int[size];
        column = new int[size];
        for (Schema.Field field : schema.getFields()) {
            int at = field.pos();
            names[at] = field.name();
            types[at] = typeOf(field.schema());
            nullBranch[at] = nullBranchOf(field.schema());
            column[at] = columns.indexOf(field.name());
        }
    }

    private static Schema.Type typeOf(Schema schema) {
        if (schema.getType() != Schema.Type.UNION) {
            return schema.getType();
        }
        for (Schema branch : schema.getTypes()) {
            if (branch.getType() != Schema.Type.NULL) {
                return branch.getType();
            }
        }
        return Schema.Type.NULL;
    }

    private static int nullBranchOf(Schema schema) {
        if (schema.getType() != Schema.Type.UNION) {
            return -1;
        }
        if (schema.getTypes().size() != 2 || schema.getIndexNamed("null") == null) {
            throw new IllegalArgumentException(
                    "unsupported union, which must be of null and one type: " + schema);
        }
        return schema.getIndexNamed("null");
    }
}
