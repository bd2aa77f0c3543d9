"""The SparkSession of a driver. Every setting that is not Spark's default has its reason here."""

import importlib.metadata
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from schemas.domain import ROW_KINDS, DomainSpec
from services.runtime.class_archives import ClassArchive, class_archive
from services.runtime.properties_text import properties_text
from services.spark_pipeline.pipeline import SparkPipeline
from services.spark_pipeline.progress import RECENT_UPDATES
from services.spark_pipeline.settings import SparkSettings, without_secrets

LOG4J = Path(__file__).parent / "log4j2.properties"
_COUNTS_STATE_ROWS = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"
_STATE = "org.apache.spark.sql.execution.streaming.state"
STATE_STORES = {
    "rocksdb": f"{_STATE}.RocksDBStateStoreProvider",
    "hdfs": f"{_STATE}.HDFSBackedStateStoreProvider",
}
# A length inside a corrupt datum may claim gigabytes; Avro would allocate them before it finds
# that the bytes are not there, and an OutOfMemoryError stops the query.
MAX_FIELD_BYTES = 1024 * 1024
LOG_OPTION = f"-Dlog4j2.configurationFile={LOG4J.as_uri()}"
JAVA_OPTIONS = (
    f"-Dorg.apache.avro.limits.string.maxLength={MAX_FIELD_BYTES}",
    f"-Dorg.apache.avro.limits.bytes.maxLength={MAX_FIELD_BYTES}",
    # The server of JMX beans is called through its class, which is the JVM's own (meters.py).
    "--add-exports=java.management/com.sun.jmx.mbeanserver=ALL-UNNAMED",
)
# A heap of about a gigabyte with little alive: one thread collects it in milliseconds, without the
# threads of the default collector.
COLLECTOR = "-XX:+UseSerialGC"
# From here on the optimising compiler has done its work before anything is measured.
LONG_WARM_UP_S = 60
CHOOSES_COLLECTOR = re.compile(r"-XX:\+Use\w+GC").fullmatch  # a JVM takes one only
ONLY_QUICK = ("-XX:TieredStopAtLevel=1",)
# Ten times the default thresholds for the optimising compiler, which by default spends its time on
# code that only starts Spark. With the collector above: 18 instead of 24 s of processor time until
# all five stages answer. What is really hot still gets there.
LATE_OPTIMISING = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
# The optimizer moves the filter for values that do not decode below the decoding, and so decodes
# every record twice. No query here gains from the two rules that do it.
EXCLUDED_RULES = ",".join(
    f"org.apache.spark.sql.catalyst.optimizer.{rule}"
    for rule in ("PushDownPredicates", "PushPredicateThroughNonJoin")
)


def slots(
    pipeline: SparkPipeline,
    domain: DomainSpec,
    stages: tuple[str, ...],
    input_partitions: int,
    output_partitions: int = 0,
) -> int:
    """Task slots that the queries of these stages need at once.

    Real-time mode runs all tasks of all stages of a query at the same time and waits for ever
    for one that has no slot: one per partition of each topic that it reads, and one per shuffle
    partition of a query with state. output_partitions: of its own topics, which may have more than
    the inputs since a run before.
    """
    via_topics = pipeline.topology == "via-topics"
    readers = reducers = 0
    for stage in stages:
        reads_one = via_topics and domain.stage(stage).reads[0] in domain.stage_names
        steps = domain.chain(stage)[-1:] if via_topics else domain.chain(stage)
        if reads_one:
            readers += max(input_partitions, output_partitions)
        else:
            readers += input_partitions * len(domain.inputs_of(stage))
        reducers += pipeline.shuffle_partitions * any(one.kind not in ROW_KINDS for one in steps)
    return readers + reducers


def compiler_options(pipeline: SparkPipeline, warm_up_s: int) -> tuple[str, ...]:
    """How the JVM compiles: as it does by default in a run that warms up for long, otherwise in the
    way that disturbs the first half minute least."""
    if warm_up_s >= LONG_WARM_UP_S:
        return ()
    return ONLY_QUICK if pipeline.quick_compiler else LATE_OPTIMISING


def spark_conf(
    pipeline: SparkPipeline,
    domain: DomainSpec,
    stages: tuple[str, ...],
    input_partitions: int,
    *,
    settings: SparkSettings,
    scratch: Path,
    output_partitions: int = 0,
    warm_up_s: int = 0,
    classes: tuple[str, ...] = (),
) -> dict[str, str]:
    """Settings of the session of a run that warms up for so long; what the pipeline sets itself
    wins, and what the service's settings say wins over that. scratch: in the folder of the run.
    classes: options of the driver's JVM for its archive of classes."""
    jar_files = sorted(str(path) for path in (settings.jars / "spark").glob("*.jar"))
    needed = slots(pipeline, domain, stages, input_partitions, output_partitions)
    given = pipeline.spark_conf | settings.spark_conf
    # Real-time mode needs all slots; batches wait for one.
    workers = pipeline.workers if pipeline.mode == "micro-batch" else 0
    cores, memory_mb = workers or needed, pipeline.driver_memory_mb
    local = f"local[{cores}]"
    if pipeline.has_own_cluster:
        local = f"local-cluster[{cores},1,{memory_mb}]"
    master = given.get("spark.master") or settings.spark_master or local
    compiler = compiler_options(pipeline, warm_up_s)
    collector = () if any(map(CHOOSES_COLLECTOR, pipeline.jvm_options)) else (COLLECTOR,)
    java_options = " ".join((*JAVA_OPTIONS, *collector, *compiler, *pipeline.jvm_options))
    # What a JVM leaves when it is ended goes with the run's folder, not into /tmp for ever.
    left = f'"-Djava.io.tmpdir={scratch}" "-XX:ErrorFile={scratch.parent}/hs_err_%p.log"'
    conf = {
        "spark.master": master,
        "spark.jars": ",".join(jar_files),
        "spark.driver.memory": f"{memory_mb}m",
        "spark.driver.extraJavaOptions": (
            f"{LOG_OPTION} {left} {java_options}" + "".join(f' "{option}"' for option in classes)
        ),
        "spark.driver.host": settings.spark_driver_host,
        "spark.driver.bindAddress": settings.spark_driver_host,
        "spark.local.dir": str(scratch),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Every micro-batch describes its plan, with the Avro schemas in it, for a user interface
        # that is off. What it gains is not established: runs of a minute differ by more.
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.maxPlanStringLength": "1000",
        "spark.ui.liveUpdate.period": "-1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": str(RECENT_UPDATES),
        "spark.sql.optimizer.excludedRules": EXCLUDED_RULES,
        "spark.sql.adaptive.enabled": "false",  # streams cannot use it; saves a warning per query
        "spark.sql.shuffle.partitions": str(pipeline.shuffle_partitions),
        "spark.sql.streaming.stateStore.providerClass": STATE_STORES[pipeline.state_store],
        # A commit writes what changed, not a snapshot of the whole store.
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # No batch without data only to remove old state: the next batch with data does that, and
        # update mode publishes nothing when state is removed.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # The local file system writes a checksum beside every file already.
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    }
    if not settings.spark_checkpoints:
        # On a local disk the default manager starts a `readlink` process for every file it
        # renames: 150 processes per second with five queries in micro-batches.
        conf["spark.sql.streaming.checkpointFileManagerClass"] = (
            "org.apache.spark.sql.execution.streaming.checkpointing"
            ".FileSystemBasedCheckpointFileManager"
        )
    if master != "local" and not master.startswith("local["):
        # Executors are processes of their own. No more than needed: several pipelines share the
        # cluster.
        conf["spark.cores.max"] = str(cores)
        conf["spark.executor.memory"] = f"{memory_mb}m"
        # On other machines the folder is not there.
        is_here = master.startswith("local-cluster[")
        conf["spark.executor.extraJavaOptions"] = (
            f"{left} {java_options}" if is_here else java_options
        )
        if workers:
            conf["spark.executor.cores"] = "1"
    if pipeline.mode == "real-time":
        # The latency floor of a shuffle: how long a network buffer waits to fill (default ~50).
        conf["spark.shuffle.streaming.networkBufferMaxWaitTimeMs"] = "2"
        # With buffers of 32 MB, the default, one topic may get 100,000 rows ahead of the other in a
        # backlog, and Spark has only the 1,000 groups changed last at hand; it asks the state store
        # for all others. Small buffers keep the topics nearer to each other.
        conf["spark.shuffle.streaming.readerMaxMemory"] = str(128 * 1024)
        conf["spark.shuffle.streaming.writerMaxMemory"] = str(64 * 1024)
        # To count its rows, RocksDB looks for the old one before every write: a sixth of what a
        # window costs in a backlog, for a number that comes only at the end of a batch.
        conf[_COUNTS_STATE_ROWS] = "false"
    return conf | given


def driver_archive(pipeline: SparkPipeline, settings: SparkSettings) -> ClassArchive | None:
    """The archive of the classes that a driver in this mode loads; None where Java is not the one
    that the stack names, or the class path is of this run alone."""
    home = os.environ.get("JAVA_HOME")
    if not home or pipeline.has_own_cluster:
        return None
    spark = importlib.metadata.distribution("pyspark")
    record = spark.locate_file(f"pyspark-{spark.version}.dist-info/RECORD")
    return class_archive(
        settings.jars,
        f"spark-{pipeline.mode}",
        Path(home),
        options=pipeline.jvm_options,
        of=[settings.jars / "installed.lock", Path(str(record))],
    )


def counts_state_rows(conf: dict[str, str]) -> bool:
    """Whether a session with these settings knows how many rows its state has."""
    return conf.get(_COUNTS_STATE_ROWS) != "false"


def open_session(name: str, conf: dict[str, str], scratch: Path) -> SparkSession:
    """Start the JVM and the session.

    The settings reach the JVM in a file that is gone when it has started: all users of the machine
    see the arguments of its processes.
    """
    if conf["spark.master"].startswith("local-cluster"):
        os.environ |= _of_own_cluster(conf["spark.driver.host"], scratch)
    path = scratch / "spark.properties"
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    try:
        path.write_text(properties_text({"spark.app.name": f"tidegauge-{name}"} | conf))
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(
            ["--properties-file", str(path), "pyspark-shell"]
        )
        return SparkSession.builder.getOrCreate()
    finally:
        path.unlink()


def class_path(spark: SparkSession) -> str:
    """The class path of the driver's JVM."""
    return str(spark.sparkContext._jvm.java.lang.System.getProperty("java.class.path"))


def _of_own_cluster(host: str, scratch: Path) -> dict[str, str]:
    """Variables of a cluster within the driver. Its workers write where Spark is installed, so they
    get a folder that leads there, and listen at the address of this machine's name."""
    home = Path(tempfile.mkdtemp(prefix="home-", dir=scratch))
    for one in Path(pyspark.__path__[0]).iterdir():
        (home / one.name).symlink_to(one)
    return {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": host, "SPARK_LOCAL_HOSTNAME": host}


def effective(spark: SparkSession, conf: dict[str, str]) -> dict[str, object]:
    """What the pipeline really runs on: versions and settings, for the lifecycle."""
    jvm_property = spark.sparkContext._jvm.java.lang.System.getProperty
    return {
        "spark_version": spark.version,
        "jvm": f"{jvm_property('java.vm.name')} {jvm_property('java.runtime.version')}",
        "settings": without_secrets(conf),
    }
