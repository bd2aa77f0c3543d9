"""Allowlists for queries over HTTP: functions, tables, settings and formats. Pure.

Everything not listed is rejected. services/store/policy/sql_tree.py applies these lists to the
syntax tree of a query, services/store/policy/query_policy.py to the other parts of a request. In
addition, the engine runs with `readonly = 1`.

Formats and settings matter because an embedded engine opens any path that they name: a template for
writing rows (whose content it shows in the error message if it is none), a schema, a directory for
schemas.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from services.store.tables import DATABASE

SYSTEM_TABLES: Final = frozenset(
    [
        "one",
        "numbers",
        "numbers_mt",
        "zeros",
        "zeros_mt",
        "tables",
        "columns",
        "databases",
        "functions",
        "formats",
        "settings",
        "time_zones",
        "data_type_families",
        "table_engines",
        "table_functions",
        "keywords",
        "collations",
        "aggregate_function_combinators",
    ]
)
# The database of the embedded engine's views of system tables, and those of them that a query gets
# in place of the table itself.
VIEWS_DATABASE: Final = "tidegauge_system"
SYSTEM_VIEWS: Final = (
    *("tables", "columns", "databases", "settings", "parts", "processes", "dictionaries"),
    *("clusters", "macros", "mutations", "data_skipping_indices", "projections"),
    *("current_roles", "enabled_roles"),
)
INFORMATION_VIEWS: Final = ("information_tables", "information_columns", "information_schemata")
INFORMATION_TABLES: Final = frozenset({"tables", "columns", "schemata", "views"})
TABLE_FUNCTIONS: Final = frozenset(
    [
        "numbers",
        "numbers_mt",
        "zeros",
        "zeros_mt",
        "one",
        "values",
        "VALUES",  # as the JDBC driver writes it
        "generateSeries",
        "generate_series",
        "view",
        "null",
        "generateRandom",
        "primes",
        "SQLStandardValues",
    ]
)
# Formats of rows alone, without an external template or schema. The engine ignores case.
FORMATS: Final = re.compile(
    r"(?:TabSeparated|TSV|CSV|CustomSeparated|JSON|Pretty|RowBinary|LineAsString|Raw)[A-Za-z]*"
    r"|Native|Arrow|ArrowStream|Parquet|ORC|Avro|BSONEachRow|MsgPack|NDJSON|Npy|Values|Vertical"
    r"|Markdown|MD|XML|SQLInsert|TSKV|HiveText|Hash|Null|ODBCDriver2",
    re.I,
)
_IGNORED_FAMILIES: Final = re.compile(
    r"(?:allow_experimental|allow_suspicious|compile|optimize|query_cache|query_plan)_\w+"
    r"|http_(?:max|retry|headers|connection|receive|send)_\w+"
)
EXPLAINED: Final = frozenset(
    f"EXPLAIN{kind}" for kind in ("", " AST", " SYNTAX", " QUERY TREE", " PLAN", " PIPELINE")
) | {"EXPLAIN ESTIMATE"}
WITH_PATHS: Final = frozenset({"system.tables", "system.databases"})
PATH_COLUMNS: Final = frozenset({"data_path", "data_paths", "metadata_path"})
ENGINES: Final = frozenset(
    f"{kind}MergeTree"
    for kind in ("", "Replacing", "Summing", "Aggregating", "Collapsing", "VersionedCollapsing")
) | {"Memory", "Null", "Log", "TinyLog", "StripeLog", "Atomic"}
# Table functions whose first argument may be a structure, which the engine parses as SQL.
STRUCTURED: Final = frozenset({"values", "VALUES", "null", "generateRandom"})
_TABLE_NAME: Final = re.compile(r"\w[\w -]*")
_LISTS: Final = tomllib.loads((Path(__file__).parent / "functions.toml").read_text())
FUNCTIONS: Final = frozenset(
    name.lower() for kind in ("scalar", "aggregate", "syntax") for name in _LISTS[kind]
)
AGGREGATES: Final = frozenset(name.lower() for name in _LISTS["aggregate"])
REFUSED_FUNCTIONS: Final = frozenset(
    name.lower() for names in _LISTS["refused"].values() for name in names
)
# More than one combinator on a function is rare; more than four are never useful.
MAX_COMBINATORS: Final = 4


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Settings of a request that only change how a result is written or computed, and limits that the
# store does not set itself. Not join_algorithm: with some, a limit writes temporary files.
FREE_SETTINGS: Final = _words("""
    date_time_input_format date_time_output_format date_time_overflow_behavior
    date_time_64_output_format_cut_trailing_zeros_align_to_groups_of_thousands session_timezone
    format_csv_allow_double_quotes format_csv_allow_single_quotes format_csv_delimiter
    format_csv_null_representation format_tsv_null_representation
    format_custom_escaping_rule format_custom_field_delimiter format_custom_result_after_delimiter
    format_custom_result_before_delimiter format_custom_row_after_delimiter
    format_custom_row_before_delimiter format_custom_row_between_delimiter
    output_format_always_write_decimal_point_in_float_and_decimal
    output_format_arrow_compression_method output_format_arrow_date_as_uint16
    output_format_arrow_fixed_string_as_fixed_byte_array
    output_format_arrow_low_cardinality_as_dictionary output_format_arrow_string_as_string
    output_format_arrow_use_64_bit_indexes_for_dictionary
    output_format_arrow_use_signed_indexes_for_dictionary
    output_format_binary_encode_types_in_binary_format output_format_binary_write_json_as_string
    output_format_bson_string_as_string output_format_csv_crlf_end_of_line
    output_format_csv_serialize_tuple_into_separate_columns output_format_decimal_trailing_zeros
    output_format_float_precision output_format_json_array_of_rows
    output_format_json_escape_forward_slashes output_format_json_map_as_array_of_tuples
    output_format_json_named_tuples_as_objects output_format_json_pretty_print
    output_format_json_quote_64bit_floats output_format_json_quote_64bit_integers
    output_format_json_quote_decimals output_format_json_quote_denormals
    output_format_json_skip_null_value_in_named_tuples output_format_json_validate_utf8
    output_format_markdown_escape_special_characters output_format_msgpack_uuid_representation
    output_format_native_encode_types_in_binary_format
    output_format_native_use_flattened_dynamic_and_json_serialization
    output_format_native_write_json_as_string output_format_orc_compression_method
    output_format_orc_string_as_string output_format_parquet_compression_method
    output_format_parquet_date_as_uint16 output_format_parquet_datetime_as_uint32
    output_format_parquet_fixed_string_as_fixed_byte_array output_format_parquet_string_as_string
    output_format_parquet_version output_format_pretty_color
    output_format_pretty_display_footer_column_names
    output_format_pretty_display_footer_column_names_min_rows
    output_format_pretty_fallback_to_vertical output_format_pretty_glue_chunks
    output_format_pretty_grid_charset output_format_pretty_highlight_digit_groups
    output_format_pretty_highlight_trailing_spaces output_format_pretty_max_column_pad_width
    output_format_pretty_max_rows output_format_pretty_max_value_width
    output_format_pretty_max_value_width_apply_for_single_value
    output_format_pretty_multiline_fields output_format_pretty_named_tuples_as_json
    output_format_pretty_row_numbers output_format_pretty_single_large_number_tip_threshold
    output_format_pretty_use_nbsp_for_padding output_format_sql_insert_include_column_names
    output_format_sql_insert_max_batch_size output_format_sql_insert_quote_names
    output_format_sql_insert_table_name output_format_sql_insert_use_replace
    output_format_trim_fixed_string output_format_tsv_crlf_end_of_line
    output_format_values_escape_quote_with_quote output_format_write_statistics
    join_any_take_last_row join_default_strictness join_use_nulls
    distinct_overflow_mode extremes final group_by_use_nulls limit offset union_default_mode
    aggregate_functions_null_for_empty any_join_distinct_right_table_keys
    asterisk_include_alias_columns asterisk_include_materialized_columns
    cancel_http_readonly_queries_on_client_close cast_ipv4_ipv6_default_on_conversion_error
    cast_keep_nullable cast_string_to_dynamic_use_inference count_distinct_implementation
    decimal_check_overflow describe_compact_output describe_include_subcolumns
    empty_result_for_aggregation_by_empty_set enable_named_columns_in_function_tuple
    enable_positional_arguments exact_rows_before_limit joined_subquery_requires_alias
    low_cardinality_allow_in_native_format output_format_avro_codec
    output_format_csv_header_serialize_tuple_into_separate_columns
    output_format_parallel_formatting output_format_parquet_compliant_nested_types
    output_format_parquet_enum_as_byte_array output_format_parquet_row_group_size
    output_format_pretty_fallback_to_vertical_max_rows_per_chunk
    output_format_pretty_fallback_to_vertical_min_columns
    output_format_pretty_fallback_to_vertical_min_table_width
    output_format_pretty_max_column_name_width_cut_to
    output_format_pretty_max_column_name_width_min_chars_to_cut
    short_circuit_function_evaluation totals_auto_threshold totals_mode transform_null_in
    use_mysql_types_in_show_columns use_variant_as_common_type
    group_by_overflow_mode join_overflow_mode max_bytes_in_distinct max_bytes_in_join
    max_bytes_in_set max_bytes_to_read max_bytes_to_sort max_columns_to_read
    max_estimated_execution_time max_rows_in_distinct max_rows_in_join max_rows_in_set
    max_rows_to_group_by max_rows_to_read max_rows_to_sort max_temporary_columns
    max_temporary_non_const_columns read_overflow_mode set_overflow_mode sort_overflow_mode
    """)
# Settings of the admin only.
ADMIN_SETTINGS: Final = _words("""
    alter_sync async_insert insert_deduplicate insert_null_as_default max_insert_block_size
    max_partitions_per_insert_block mutations_sync wait_for_async_insert
    input_format_allow_errors_num input_format_allow_errors_ratio
    input_format_csv_empty_as_default input_format_csv_skip_first_lines
    input_format_defaults_for_omitted_fields input_format_native_allow_types_conversion
    input_format_null_as_default input_format_skip_unknown_fields
    input_format_tsv_empty_as_default input_format_tsv_skip_first_lines
    input_format_with_names_use_header input_format_with_types_use_header
    """)
# Settings that the store bounds (services/store/settings.py). A request can tighten them.
BOUNDED_SETTINGS: Final = _words("""
    additional_table_filters max_ast_depth max_ast_elements max_block_size max_execution_time
    max_expanded_ast_elements max_memory_usage max_parser_backtracks max_parser_depth
    max_query_size max_result_bytes max_result_rows max_threads result_overflow_mode
    timeout_overflow_mode
    """)
# Settings that clients send on connect, and that change no result of a query: of transport, of
# logging, of INSERTs and replicas. They are accepted, and the engine does not get them. The ODBC
# driver sends prefer_column_name_to_alias, with which views would fail.
IGNORED_SETTINGS: Final = _words("""
    add_http_cors_header alter_sync async_insert async_insert_busy_timeout_ms
    async_insert_deduplicate async_insert_max_data_size async_query_sending_for_remote
    connect_timeout connect_timeout_with_failover_ms connect_timeout_with_failover_secure_ms
    connections_with_failover_max_tries enable_analyzer
    enable_dynamic_type enable_http_compression enable_json_type enable_time_time64_type
    enable_variant_type input_format_binary_read_json_as_string
    http_native_compression_disable_checksumming_on_decompress http_response_buffer_size
    http_wait_end_of_query http_write_exception_in_output_format http_zlib_compression_level
    database_replicated_enforce_synchronous_settings
    deduplicate_blocks_in_dependent_materialized_views distributed_ddl_task_timeout
    distributed_product_mode enable_job_stack_trace enable_lightweight_delete
    enable_unaligned_array_join fsync_metadata idle_connection_timeout implicit_transaction
    input_format_native_allow_types_conversion insert_deduplicate insert_distributed_sync
    insert_null_as_default insert_quorum insert_quorum_parallel insert_quorum_timeout
    interactive_delay lightweight_deletes_sync load_balancing log_formatted_queries
    log_processors_profiles log_profile_events log_queries log_queries_cut_to_length
    log_queries_min_query_duration_ms log_queries_min_type log_queries_probability
    log_query_settings log_query_threads log_query_views max_compress_block_size
    max_concurrent_queries_for_user max_insert_block_size max_insert_threads
    max_parallel_replicas max_partitions_per_insert_block
    min_compress_block_size min_insert_block_size_bytes min_insert_block_size_rows
    mutations_sync network_compression_method network_zstd_compression_level
    normalize_function_names poll_interval prefer_column_name_to_alias prefer_localhost_replica
    priority
    query_profiler_cpu_time_period_ns query_profiler_real_time_period_ns queue_max_wait_ms
    readonly receive_timeout replication_alter_partitions_sync
    replication_wait_for_inactive_replica_timeout select_sequential_consistency send_logs_level
    send_logs_source_regexp send_progress_in_http_headers
    send_profile_events send_timeout skip_unavailable_shards tcp_keep_alive_timeout
    use_client_time_zone use_hedged_requests use_query_cache
    use_skip_indexes use_uncompressed_cache wait_for_async_insert wait_for_async_insert_timeout
    """)
EXPLAIN_SETTINGS: Final = _words("""
    actions compact description distributed dump_ast dump_passes dump_tree graph header indexes
    json keep_logical_steps oneline optimize passes projections query_tree_passes run_passes
    run_query_tree_passes sorting
    """)
TABLE_SETTINGS: Final = _words("""
    index_granularity index_granularity_bytes merge_with_ttl_timeout min_bytes_for_wide_part
    min_rows_for_wide_part non_replicated_deduplication_window ttl_only_drop_parts
    allow_nullable_key
    """)
CODECS: Final = _words("CODEC NONE LZ4 LZ4HC ZSTD Delta DoubleDelta Gorilla T64 FPC GCD Default")
INDEX_TYPES: Final = _words("minmax set bloom_filter tokenbf_v1 ngrambf_v1")
# Commands of ALTER TABLE.
COMMANDS: Final = _words("""
    ADD_COLUMN DROP_COLUMN MODIFY_COLUMN RENAME_COLUMN COMMENT_COLUMN MATERIALIZE_COLUMN
    CLEAR_COLUMN MODIFY_COMMENT MODIFY_ORDER_BY MODIFY_TTL REMOVE_TTL MATERIALIZE_TTL MODIFY_QUERY
    MODIFY_SETTING RESET_SETTING DELETE UPDATE DROP_PARTITION ADD_INDEX DROP_INDEX
    MATERIALIZE_INDEX ADD_CONSTRAINT DROP_CONSTRAINT ADD_PROJECTION DROP_PROJECTION
    MATERIALIZE_PROJECTION
    """)
# Functions that parse a text as a query, to which the same bounds apply.
OF_QUERIES: Final = _words(
    "formatquery formatqueryornull formatquerysingleline formatquerysinglelineornull"
    " parsequerytojson"
)
# Functions that parse one argument as a type, an aggregate function or a format: its index.
BY_TEXT: Final[Mapping[str, int]] = {
    **dict.fromkeys(("cast", "_cast", "reinterpret", "getsubcolumn"), 1),
    **dict.fromkeys(("accuratecast", "accuratecastornull", "accuratecastordefault"), 1),
    **dict.fromkeys(("dynamicelement", "variantelement"), 1),
    **dict.fromkeys(("isdynamicelementinshareddata",), 1),
    **dict.fromkeys(("jsonextract", "jsonextractcaseinsensitive"), -1),
    **dict.fromkeys(("jsonextractkeysandvalues", "jsonextractkeysandvaluescaseinsensitive"), -1),
    **dict.fromkeys(("arrayreduce", "arrayreduceinranges", "initializeaggregation"), 0),
    **dict.fromkeys(("defaultvalueoftypename", "formatrow", "formatrownonewline"), 0),
    **dict.fromkeys(OF_QUERIES, 0),
}
# Functions that are not given by name alone: their arguments could not be judged.
NOT_BY_NAME: Final = REFUSED_FUNCTIONS | BY_TEXT.keys() | {"formatqueryfromjson"}
COMBINATORS: Final = _words(
    "simplestate ordefault distinct resample foreach argmax argmin ornull tuple merge state array"
    " null map if"
)


def is_function(name: str) -> bool:
    """Whether a function may be used. The engine ignores the case of many names."""
    return name.lower() in FUNCTIONS or _is_combined(name.lower(), MAX_COMBINATORS)


def _is_combined(name: str, most: int) -> bool:
    if name in AGGREGATES:
        return True
    return most > 0 and any(
        name.endswith(suffix) and _is_combined(name.removesuffix(suffix), most - 1)
        for suffix in COMBINATORS
    )


def is_table(parts: Sequence[str], current: str = DATABASE) -> bool:
    """Whether a table may be read. A name without database refers to the current one or the query
    itself."""
    *database, table = parts
    if not database and current == DATABASE:
        return bool(_TABLE_NAME.fullmatch(table))
    database = database or [current]
    if len(database) > 1:
        return False
    if database[0].lower() == "information_schema":
        return table.lower() in INFORMATION_TABLES
    listed = {"system": SYSTEM_TABLES, VIEWS_DATABASE: (*SYSTEM_VIEWS, *INFORMATION_VIEWS)}
    if database[0] in listed:
        return table in listed[database[0]]
    return database[0] == DATABASE and bool(_TABLE_NAME.fullmatch(table))


def is_ignored(name: str, may_write: bool) -> bool:
    """Whether a setting is accepted without any effect. may_write: whether the request is the
    admin's, who may change some of them."""
    if may_write and name in ADMIN_SETTINGS:
        return False
    return name in IGNORED_SETTINGS or bool(_IGNORED_FAMILIES.fullmatch(name))


def refused_setting(name: str, may_write: bool) -> bool:
    """Whether a request may not change a setting. may_write: whether it is the admin's."""
    return name not in FREE_SETTINGS and not (may_write and name in ADMIN_SETTINGS)


def settable(name: str, may_write: bool) -> bool:
    """Whether a request may name a setting, be it one that it can only tighten or one without
    effect."""
    return (
        name in BOUNDED_SETTINGS
        or is_ignored(name, may_write)
        or not refused_setting(name, may_write)
    )


def refused_format(name: str) -> str | None:
    """Why a format may not be used, in one sentence, or None."""
    return None if FORMATS.fullmatch(name) else f"The format {name} cannot be used here."


def quoted(text: str) -> str:
    """`text` as a ClickHouse string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0")
    return f"'{escaped}'"
