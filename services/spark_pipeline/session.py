"""The SparkSession of a driver. Every setting that differs from Spark's default has a reason."""

import importlib.metadata
import os
import re
import secrets
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from schemas.domain import ROW_KINDS, DomainSpec
from schemas.protocol import RUNS_ELSEWHERE
from schemas.workload import LONG_WARM_UP_S
from services.runtime.files import properties_text
from services.runtime.hosts import LOOPBACK
from services.runtime.jvm import ClassArchive, class_archive
from services.spark_pipeline.progress import RECENT_UPDATES
from services.spark_pipeline.settings import SparkPipeline, SparkSettings, without_secrets

LOG4J = Path(__file__).parent / "log4j2.properties"
_COUNTS_STATE_ROWS = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"
_STATE = "org.apache.spark.sql.execution.streaming.state"
STATE_STORES = {
    "rocksdb": f"{_STATE}.RocksDBStateStoreProvider",
    "hdfs": f"{_STATE}.HDFSBackedStateStoreProvider",
}
# A length in a corrupt datum may claim gigabytes; Avro would allocate them before it detects the
# missing bytes, and an OutOfMemoryError stops the query.
MAX_FIELD_BYTES = 1024 * 1024
LOG_OPTION = f"-Dlog4j2.configurationFile={LOG4J.as_uri()}"
JAVA_OPTIONS = (
    f"-Dorg.apache.avro.limits.string.maxLength={MAX_FIELD_BYTES}",
    f"-Dorg.apache.avro.limits.bytes.maxLength={MAX_FIELD_BYTES}",
    # Give progress.py access to the internal class of the JMX server.
    "--add-exports=java.management/com.sun.jmx.mbeanserver=ALL-UNNAMED",
)
# The heap has few live objects: one thread collects it in milliseconds, without the threads of the
# default collector.
COLLECTOR = "-XX:+UseSerialGC"
DRIVER_MEMORY = "spark.driver.memory"
OWN_CLUSTER = "local-cluster["  # executors are processes of this machine
CHOOSES_COLLECTOR = re.compile(r"-XX:\+Use\w+GC").fullmatch  # a JVM accepts only one
ONLY_QUICK = ("-XX:TieredStopAtLevel=1",)
# Ten times the default thresholds of the optimising compiler, which by default compiles much code
# that only starts Spark. With the collector above: 18 instead of 24 s of processor time until all
# five stages answer. Hot code is still compiled.
LATE_OPTIMISING = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
# These rules push the filter for undecodable values below the decoding, so that every record is
# decoded twice. No query here benefits from them.
EXCLUDED_RULES = ",".join(
    f"org.apache.spark.sql.catalyst.optimizer.{rule}"
    for rule in ("PushDownPredicates", "PushPredicateThroughNonJoin")
)

ALWAYS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Otherwise every micro-batch renders its plan, with the Avro schemas in it, for the
    # disabled UI. The gain is not established: runs of a minute vary by more.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "1000",
    "spark.ui.liveUpdate.period": "-1",
    # Kept on the heap for the disabled UI: by default a thousand jobs, stages and executions, each
    # with its plan. If the heap is full, Spark stops its SparkContext (decision 205).
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": str(RECENT_UPDATES),
    "spark.sql.optimizer.excludedRules": EXCLUDED_RULES,
    "spark.sql.adaptive.enabled": "false",  # unsupported by streams; saves a warning per query
    # Commit changes instead of a snapshot of the whole store.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # No empty batches just to remove old state: the next batch with data removes it, and update
    # mode publishes nothing when state is removed.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # The local file system already writes a checksum file for every file.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
# On a local disk the default manager starts a `readlink` process for every file it renames: 150
# processes per second with five queries in micro-batches.
LOCAL_CHECKPOINTS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    )
}
REAL_TIME = {
    # Latency floor of a shuffle: how long a network buffer waits to fill (default ~50).
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "2",
    # With 32 MB buffers, the default, one topic may get 100,000 rows ahead of the other in a
    # backlog. Spark caches only the 1,000 groups changed last and reads all others from the
    # state store. Small buffers keep the topics closer together.
    "spark.shuffle.streaming.readerMaxMemory": str(128 * 1024),
    "spark.shuffle.streaming.writerMaxMemory": str(64 * 1024),
    # To count rows, RocksDB looks up the old row before every write: a sixth of the cost of a
    # window in a backlog, for a number that is reported only at the end of a batch.
    _COUNTS_STATE_ROWS: "false",
}


def slots(
    pipeline: SparkPipeline,
    domain: DomainSpec,
    stages: tuple[str, ...],
    input_partitions: int,
    output_partitions: int = 0,
) -> int:
    """Task slots needed by the queries of these stages at once.

    Real-time mode runs all tasks of all stages of a query at the same time and waits forever for a
    missing slot: one per partition of each topic that it reads, and one per shuffle partition of a
    query with state. output_partitions: of the pipeline's output topics, which may have more than
    the inputs after an earlier run.
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
        reducers += pipeline.shuffle_partitions * any(step.kind not in ROW_KINDS for step in steps)
    return readers + reducers


def compiler_options(pipeline: SparkPipeline, warm_up_s: int) -> tuple[str, ...]:
    """JIT options: the defaults for a run with a long warm-up, in which the optimising compiler
    finishes before anything is measured; otherwise those that disturb the first half minute
    least."""
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
    """Session settings of a run with this warm-up. The pipeline's own settings override them, and
    those of the service override both. scratch: in the folder of the run. classes: options of the
    driver's JVM for its class data sharing archive."""
    jar_files = sorted(str(path) for path in (settings.jars / "spark").glob("*.jar"))
    needed = slots(pipeline, domain, stages, input_partitions, output_partitions)
    given = pipeline.spark_conf | settings.spark_conf
    # Real-time mode needs all slots; batches can wait for one.
    workers = pipeline.workers if pipeline.mode == "micro-batch" else 0
    cores, memory_mb = workers or needed, pipeline.driver_memory_mb
    local = f"local[{cores}]"
    if pipeline.has_own_cluster:
        local = f"{OWN_CLUSTER}{cores},1,{memory_mb}]"
    master = given.get("spark.master") or settings.spark_master or local
    compiler = compiler_options(pipeline, warm_up_s)
    collector = () if any(map(CHOOSES_COLLECTOR, pipeline.jvm_options)) else (COLLECTOR,)
    java_options = " ".join((*JAVA_OPTIONS, *collector, *compiler, *pipeline.jvm_options))
    # All of the heap from the beginning: otherwise the size of its young generation depends on the
    # memory of the machine, and with it how often garbage is collected.
    whole = "" if DRIVER_MEMORY in given else f" -Xms{memory_mb}m"
    # Keep temporary files and crash logs in the run's folder, which is removed, instead of /tmp.
    left = f'"-Djava.io.tmpdir={scratch}" "-XX:ErrorFile={scratch.parent}/hs_err_%p.log"'
    conf = {
        "spark.master": master,
        "spark.jars": ",".join(jar_files),
        DRIVER_MEMORY: f"{memory_mb}m",
        "spark.driver.extraJavaOptions": (
            f"{LOG_OPTION} {left}{whole} {java_options}"
            + "".join(f' "{option}"' for option in classes)
        ),
        "spark.driver.host": settings.spark_driver_host,
        "spark.driver.bindAddress": settings.spark_driver_host,
        "spark.local.dir": str(scratch),
        "spark.sql.shuffle.partitions": str(pipeline.shuffle_partitions),
        "spark.sql.streaming.stateStore.providerClass": STATE_STORES[pipeline.state_store],
        **ALWAYS,
        **(LOCAL_CHECKPOINTS if not settings.spark_checkpoints else {}),
        **(REAL_TIME if pipeline.mode == "real-time" else {}),
        **_login(master),
    }
    if master != "local" and not master.startswith("local["):
        conf |= {
            # Use no more cores than needed: pipelines share the cluster.
            "spark.cores.max": str(cores),
            "spark.executor.memory": f"{memory_mb}m",
            # Other machines do not have the folder.
            "spark.executor.extraJavaOptions": (
                f"{left} {java_options}" if master.startswith(OWN_CLUSTER) else java_options
            ),
            **({"spark.executor.cores": "1"} if workers else {}),
        }
    return conf | given


def runs_elsewhere(master: str) -> bool:
    """Whether executors of a master are no processes of the driver, whose use can be sampled."""
    return not master.startswith("local")  # local, local[N], local-cluster[N,…]


def _login(master: str) -> dict[str, str]:
    """A secret for the ports of the driver, and of executors on this machine, which are open to its
    other users."""
    result = {"spark.authenticate": "true"} if master.startswith("local") else {}
    if master.startswith(OWN_CLUSTER):
        result["spark.authenticate.secret"] = secrets.token_hex(32)
    return result


def driver_archive(pipeline: SparkPipeline, settings: SparkSettings) -> ClassArchive | None:
    """The class data sharing archive of a driver in this mode; None if Java is not the stack's, or
    if the class path is specific to this run."""
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
    """Whether a session with these settings counts state rows."""
    return conf.get(_COUNTS_STATE_ROWS) != "false"


def open_session(name: str, conf: dict[str, str], scratch: Path) -> SparkSession:
    """Start the JVM and the session.

    Settings are passed to the JVM in a temporary file, because all users of the machine can read
    process arguments.
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
        gateway = launch_gateway()
        if conf["spark.driver.bindAddress"] in LOOPBACK:
            listen_on_loopback(gateway.jvm)
        SparkContext(gateway=gateway)
        return SparkSession.builder.getOrCreate()
    finally:
        path.unlink()


def listen_on_loopback(jvm: Any) -> None:
    """Make a JVM listen on loopback wherever it names no address, as the streaming shuffle of
    real-time mode does, for which Spark has no setting.

    The JVM keeps its wildcard address in a field. Every server socket without an address of its own
    gets it from there; an explicit 0.0.0.0 still means all interfaces. jvm: of a py4j gateway.
    """
    kind = jvm.java.lang.Class.forName("java.net.InetAddress")
    resolver = kind.getDeclaredField("impl")
    resolver.setAccessible(True)
    result = resolver.get(None)
    wildcard = result.getClass().getDeclaredField("anyLocalAddress")
    wildcard.setAccessible(True)
    wildcard.set(result, jvm.java.net.InetAddress.getLoopbackAddress())


def is_stopped(spark: SparkSession) -> bool:
    """Whether the SparkContext is stopped."""
    return bool(spark.sparkContext._jsc.sc().isStopped())


def class_path(spark: SparkSession) -> str:
    """The class path of the driver's JVM."""
    return str(spark.sparkContext._jvm.java.lang.System.getProperty("java.class.path"))


def _of_own_cluster(host: str, scratch: Path) -> dict[str, str]:
    """Environment of a cluster within the driver. Its workers write to Spark's installation folder,
    so they get a folder that links to it, and listen at the address of this machine's name."""
    home = Path(tempfile.mkdtemp(prefix="home-", dir=scratch))
    for each in Path(pyspark.__path__[0]).iterdir():
        (home / each.name).symlink_to(each)
    return {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": host, "SPARK_LOCAL_HOSTNAME": host}


def effective(spark: SparkSession, conf: dict[str, str]) -> dict[str, object]:
    """The versions and settings in effect, for the lifecycle event."""
    jvm_property = spark.sparkContext._jvm.java.lang.System.getProperty
    return {
        "spark_version": spark.version,
        "jvm": f"{jvm_property('java.vm.name')} {jvm_property('java.runtime.version')}",
        "settings": without_secrets(conf),
        RUNS_ELSEWHERE: runs_elsewhere(conf["spark.master"]),
    }
