"""An exception at a record, once, when the run asks for it.

A file that the conductor makes becomes a property of the JVM. The task that clears the property
throws, so it happens once. Of the executors of a cluster, other JVMs, none would see it.
"""

import threading
import time
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

PROPERTY: Final = "tidegauge.faulty_record"
# Spark makes the text `null` of null.
_CALL: Final = f"coalesce(reflect('java.lang.System', '{{}}', '{PROPERTY}'), 'null') = 'null'"
# True for every record, or an exception. The first call takes no lock.
NO_FAULT: Final = (
    f"assert_true({_CALL.format('getProperty')} OR {_CALL.format('clearProperty')}, "
    "'a faulty record, planted by the workload') IS NULL"
)
LOOK_EVERY_S: Final = 0.01


def watch_file(spark: SparkSession, path: str) -> None:
    """Set the property while the file exists, until a task has cleared it; then remove the file."""

    def look() -> None:
        system, file = spark._jvm.java.lang.System, Path(path)  # type: ignore[union-attr]
        is_set = False
        while True:
            time.sleep(LOOK_EVERY_S)
            try:
                if is_set and system.getProperty(PROPERTY) is None:
                    file.unlink()
                    is_set = False
                elif not is_set and file.exists():
                    system.setProperty(PROPERTY, "due")
                    is_set = True
            except (Py4JError, ConnectionError):  # the JVM has ended
                return

    threading.Thread(target=look, name="faulty-record", daemon=True).start()
