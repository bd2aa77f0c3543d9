"""Kinds of nodes allowed in the syntax tree of a query, and the parts allowed in each.

READ: of queries that read. WRITTEN: in addition, of the admin's statements. PARTS: both, by kind.
"""

from collections.abc import Mapping
from typing import Final

READ: Final[Mapping[str, str]] = {
    "SelectWithUnionQuery": "union_mode list_of_modes list_of_selects format_ast settings_ast",
    "SelectIntersectExceptQuery": "children final_operator",
    "SelectQuery": (
        "select tables order_by limit_length limit_offset limit_with_ties where group_by with"
        " having distinct window group_by_with_totals group_by_with_rollup group_by_with_cube"
        " group_by_with_grouping_sets group_by_all order_by_all prewhere qualify settings"
        " limit_by limit_by_length limit_by_offset limit_by_all interpolate cte_aliases"
        " recursive_with distinct_on"
    ),
    "ExplainQuery": "kind query settings format_ast settings_ast",
    "ShowTablesQuery": (
        "like not_like case_insensitive_like where_expression from databases full temporary"
        " limit_length format_ast settings_ast"
    ),
    "ShowColumnsQuery": (
        "table database like not_like case_insensitive_like where_expression extended full"
        " limit_length format_ast settings_ast"
    ),
    "SetQuery": "changes default_settings",
    "ExpressionList": "children separator",
    "Subquery": "children alias cte_name",
    "WithElement": "name subquery aliases",
    "TablesInSelectQuery": "children",
    "TablesInSelectQueryElement": "table_expression table_join array_join",
    "TableExpression": (
        "database_and_table_name subquery table_function final sample_size sample_offset"
        " column_aliases"
    ),
    "TableIdentifier": "name name_parts alias",
    "TableJoin": "kind strictness locality on_expression using_expression_list is_natural",
    "ArrayJoin": "kind expression_list",
    "SampleRatio": "numerator denominator",
    "Identifier": "name name_parts alias",
    "Literal": "value alias",
    "QueryParameter": "name param_type alias",
    "Function": (
        "name arguments parameters alias is_operator window_definition window_name kind"
        " is_window_function is_lambda_function nulls_action no_empty_args"
    ),
    "WindowDefinition": (
        "parent_window_name partition_by order_by frame_is_default frame_type frame_begin_type"
        " frame_begin_preceding frame_begin_offset frame_end_type frame_end_preceding"
        " frame_end_offset"
    ),
    "WindowListElement": "name definition",
    "OrderByElement": (
        "direction nulls_direction nulls_direction_was_explicitly_specified expression collation"
        " with_fill fill_from fill_to fill_step fill_staleness"
    ),
    "InterpolateElement": "column expr",
    "Asterisk": "transformers expression",
    "QualifiedAsterisk": "qualifier transformers",
    "ColumnsRegexpMatcher": "pattern transformers expression",
    "ColumnsListMatcher": "column_list transformers expression",
    "QualifiedColumnsRegexpMatcher": "qualifier pattern transformers",
    "QualifiedColumnsListMatcher": "qualifier column_list transformers",
    "ColumnsTransformerList": "children",
    "ColumnsApplyTransformer": "func_name parameters lambda lambda_arg column_name_prefix",
    "ColumnsExceptTransformer": "children is_strict pattern",
    "ColumnsReplaceTransformer": "children is_strict",
    "ColumnsReplaceTransformerReplacement": "name children",
    "DataType": "name arguments",
    "EnumDataType": "name values",
    "NameTypePair": "name name_type",
    "Collation": "collation",
}
WRITTEN: Final[Mapping[str, str]] = {
    "InsertQuery": "database table columns format settings_ast select",
    "CreateQuery": (
        "database table database_ast table_ast if_not_exists is_ordinary_view is_materialized_view"
        " is_populate replace_view replace_table create_or_replace columns_list storage select"
        " comment as_database as_table targets aliases_list"
    ),
    "AlterQuery": "database table database_ast table_ast alter_object command_list",
    "AlterCommand": (
        "command_type if_not_exists if_exists first replace col_decl column rename_to ttl predicate"
        " update_assignments comment order_by index_decl index partition settings_changes"
        " settings_resets constraint_decl constraint projection_decl projection select clear_column"
    ),
    "DropQuery": (
        "database table database_ast table_ast kind if_exists if_empty is_view sync"
        " database_and_tables"
    ),
    "RenameQuery": "exchange elements",
    "OptimizeQuery": "database table partition final deduplicate deduplicate_by_columns",
    "KillQueryQuery": "kill_type where_expression sync",
    "Columns definition": "columns indices constraints projections primary_key",
    "ColumnDeclaration": (
        "name data_type default_specifier default_expression comment codec ttl null_modifier"
    ),
    "IndexDeclaration": "name granularity expression index_type",
    "ConstraintDeclaration": "name constraint_type expr",
    "ProjectionDeclaration": "name query",
    "ProjectionSelectQuery": "with select group_by order_by",
    "Storage": "engine partition_by primary_key order_by sample_by ttl_table settings",
    "StorageOrderByElement": "direction children",
    "TTLElement": "mode destination_type ttl_expr where_expr group_by_key group_by_assignments",
    "Assignment": "column_name children",
    "Partition": "value all fields_count",
    "ViewTargets": "targets",
}
PARTS: Final = {kind: frozenset(parts.split()) for kind, parts in {**READ, **WRITTEN}.items()}
