"""What was promised and did not come, came twice, or came late: by topic and subscriber.

**Owed** is every version from the subscription on: from the `subscribed` event where there is one,
else from the first version that came; until `unsubscribed`, else to the end. What was published
shortly before the end (`SETTLE_NS`) is under way and owed to nobody yet.

Versions of a topic are numbered here in the order in which they entered. So what is owed is the
difference of two numbers, and never a row for each version and subscriber that might have met.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from traces import Stage

SETTLE_NS = 10 * 10**9
_WHO = ("topic", "subscriber")
_MARKS = (str(Stage.SUBSCRIBED), str(Stage.UNSUBSCRIBED))


def numbered_updates(corrected: DataFrame) -> DataFrame:
    """Every update that entered, as `trace_id`, `topic`, `at_ns`, and its `number` in the topic.

    Subscriptions stand between them, with the number of the update before and `mark` set.
    """
    entered = corrected.where(
        F.col("stage").isin(str(Stage.FETCHED), str(Stage.PUBLISHED))
        & F.col("reason").isNull()
        & F.col("trace_id").isNotNull()
        & F.col("topic").isNotNull()
    )
    nobody = F.lit(None).cast("string")
    updates = (
        entered.groupBy("trace_id", "topic")
        .agg(F.min("at_ns").alias("at_ns"))
        .select("topic", "at_ns", "trace_id", nobody.alias("subscriber"), nobody.alias("mark"))
    )
    marks = corrected.where(F.col("stage").isin(*_MARKS)).select(
        "topic", "at_ns", nobody.alias("trace_id"), "subscriber", F.col("stage").alias("mark")
    )
    so_far = (
        Window.partitionBy("topic")
        .orderBy("at_ns", "trace_id")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return updates.unionByName(marks).withColumn("number", F.count("trace_id").over(so_far))


def arrivals(journeys: DataFrame, numbered: DataFrame) -> DataFrame:
    """A row for every update and everyone it came to, wherever: its number, and how often."""
    updates = numbered.where("mark is null").select("trace_id", "number")
    return (
        journeys.groupBy("trace_id", *_WHO, "publisher", "epoch", "version")
        .agg(F.min("at_ns").alias("at_ns"), F.sum("times").alias("times"))
        .join(updates, "trace_id")
    )


def losses(arrived: DataFrame, numbered: DataFrame, end_ns: int) -> DataFrame:
    """By topic and subscriber: owed, delivered, lost, doubled and late."""
    owing = _owing(numbered)
    settled = (
        numbered.where(F.col("mark").isNull() & (F.col("at_ns") <= end_ns - SETTLE_NS))
        .groupBy("topic")
        .agg(F.max("number").alias("settled"))
    )
    earlier = (
        Window.partitionBy(*_WHO, "publisher", "epoch")
        .orderBy("at_ns")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    late = F.coalesce(F.max("version").over(earlier) > F.col("version"), F.lit(False))
    bounds = (
        arrived.withColumn("late", late)
        .join(F.broadcast(settled), "topic", "left")
        .join(owing, [*_WHO], "left")
        .withColumn("until", F.coalesce("until", F.coalesce("settled", F.lit(0))))
        .withColumn("since", F.coalesce("since", F.min("number").over(Window.partitionBy(*_WHO))))
    )
    owed = F.col("number").between(F.col("since"), F.col("until"))
    came = bounds.groupBy(*_WHO).agg(
        F.count("*").alias("delivered"),
        F.sum(F.when(owed, 1).otherwise(0)).alias("of_owed"),
        F.sum(F.col("times") - 1).alias("doubled"),
        F.sum(F.col("late").cast("long")).alias("late"),
        F.min("number").alias("first"),
    )
    everyone = came.join(owing, [*_WHO], "full").join(F.broadcast(settled), "topic", "left")
    zero = F.lit(0)
    until = F.coalesce("until", "settled", zero)
    since = F.coalesce("since", "first")
    owed_count = F.greatest(until - since + 1, zero)
    table = everyone.select(
        *_WHO,
        owed_count.alias("owed"),
        *(F.coalesce(name, zero).alias(name) for name in ("delivered", "doubled", "late")),
        (owed_count - F.coalesce("of_owed", zero)).alias("lost"),
    )
    return table.select(*_WHO, "owed", "delivered", "lost", "doubled", "late")


def never_delivered(arrived: DataFrame, numbered: DataFrame, end_ns: int) -> DataFrame:
    """By topic: updates that entered, and those that came to nobody at all."""
    came = arrived.select("trace_id").distinct().withColumn("came", F.lit(1))
    updates = numbered.where(F.col("mark").isNull() & (F.col("at_ns") <= end_ns - SETTLE_NS))
    return (
        updates.join(came, "trace_id", "left")
        .groupBy("topic")
        .agg(
            F.count("*").alias("updates"),
            F.sum(F.when(F.col("came").isNull(), 1).otherwise(0)).alias("to_nobody"),
        )
    )


def _owing(numbered: DataFrame) -> DataFrame:
    """From which number until which, of those who said when they came and went."""
    marks = numbered.where("mark is not null")
    came, went = (F.when(F.col("mark") == mark, F.col("number")) for mark in _MARKS)
    last_came, last_went = (F.max(F.when(F.col("mark") == mark, F.col("at_ns"))) for mark in _MARKS)
    gone = last_went > F.coalesce(last_came, F.lit(0))
    return marks.groupBy(*_WHO).agg(
        (F.min(came) + 1).alias("since"), F.when(gone, F.max(went)).alias("until")
    )
