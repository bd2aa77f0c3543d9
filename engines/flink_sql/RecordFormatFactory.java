package tidegauge.flink;

import java.util.List;
import java.util.Set;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.format.DecodingFormat;
import org.apache.flink.table.connector.format.EncodingFormat;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.factories.DeserializationFormatFactory;
import org.apache.flink.table.factories.DynamicTableFactory;
import org.apache.flink.table.factories.SerializationFormatFactory;
import org.apache.flink.table.types.DataType;

/**
 * The table format `record`: Avro in single-object encoding (C3 01, the fingerprint of the schema,
 * the datum), which Flink's own format `avro` does not read; or JSON. Columns are fields of the
 * schema by name. A value that does not decode gives no row and is reported.
 */
public final class RecordFormatFactory implements DeserializationFormatFactory, SerializationFormatFactory {
    private static final ConfigOption<String> SCHEMA =
            ConfigOptions.key("schema").stringType().noDefaultValue();
    private static final ConfigOption<String> WIRE_FORMAT =
            ConfigOptions.key("wire-format").stringType().defaultValue("avro");

    @Override
    public String factoryIdentifier() {
        return "record";
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return Set.of(SCHEMA);
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        return Set.of(WIRE_FORMAT);
    }

    @Override
    public DecodingFormat<DeserializationSchema<RowData>> createDecodingFormat(
            DynamicTableFactory.Context context, ReadableConfig options) {
        String schema = options.get(SCHEMA);
        boolean isJson = options.get(WIRE_FORMAT).equals("json");
        String topic = context.getCatalogTable().getOptions().get("topic");
        return new DecodingFormat<>() {
            @Override
            public DeserializationSchema<RowData> createRuntimeDecoder(
                    DynamicTableSource.Context source, DataType type) {
                List<String> columns = DataType.getFieldNames(type);
                return new RecordReader(
                        topic, schema, isJson, columns, source.createTypeInformation(type));
            }

            @Override
            public ChangelogMode getChangelogMode() {
                return ChangelogMode.insertOnly();
            }
        };
    }

    @Override
    public EncodingFormat<SerializationSchema<RowData>> createEncodingFormat(
            DynamicTableFactory.Context context, ReadableConfig options) {
        String schema = options.get(SCHEMA);
        return new EncodingFormat<>() {
            @Override
            public SerializationSchema<RowData> createRuntimeEncoder(
                    DynamicTableSink.Context sink, DataType type) {
                return new RecordWriter(schema, DataType.getFieldNames(type));
            }

            @Override
            public ChangelogMode getChangelogMode() {
                return ChangelogMode.insertOnly();
            }
        };
    }
}
