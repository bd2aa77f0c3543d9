"""Environment variables whose options every JVM adds to its own. Standard library only."""

from collections.abc import Mapping

# The JVM's, the same in an older form, and the `java` command's; then those of OpenJ9.
JVM_OPTIONS = frozenset(
    {
        "JAVA_TOOL_OPTIONS",
        "_JAVA_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "OPENJ9_JAVA_OPTIONS",
        "IBM_JAVA_OPTIONS",
    }
)


def without_jvm_options(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment without them."""
    return {name: value for name, value in environ.items() if name not in JVM_OPTIONS}
