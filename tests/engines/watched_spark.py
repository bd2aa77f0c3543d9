"""A Spark pipeline without any support for Tidegauge: large payments, and sums by shop and second.

python watched_spark.py BOOTSTRAP JARS CHECKPOINTS
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

PAYMENT = "id BIGINT, shop STRING, amount DOUBLE, paid_at TIMESTAMP"


def main() -> None:
    """Read payments in JSON and write both outputs, until killed."""
    bootstrap, jars, checkpoints = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(sorted(map(str, Path(jars).glob("*.jar")))))
        .config("spark.driver.memory", "700m")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.local.dir", checkpoints)
        .getOrCreate()
    )
    kafka = {"kafka.bootstrap.servers": bootstrap}
    lines = (
        spark.readStream.format("kafka")
        .options(**kafka, subscribe="payments", startingOffsets="earliest")
        .load()
    )
    payments = lines.select(
        f.from_json(f.col("value").cast("string"), PAYMENT).alias("payment")
    ).select("payment.*")
    large = payments.where("amount >= 50").select(f.to_json(f.struct("id", "shop")).alias("value"))
    sums = (
        payments.withWatermark("paid_at", "500 milliseconds")
        .groupBy(f.window("paid_at", "1 second"), "shop")
        .agg(f.sum("amount").alias("amount"))
        .select("shop", f.to_json(f.struct("window", "amount")).alias("value"))
        .withColumnRenamed("shop", "key")
    )
    for name, rows in (("large", large), ("sums", sums)):
        writer = rows.writeStream.format("kafka").options(**kafka, topic=name)
        writer = writer.option("checkpointLocation", f"{checkpoints}/{name}")
        writer.outputMode("append").trigger(processingTime="300 milliseconds").start()
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
