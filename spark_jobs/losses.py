"""What was promised and did not come, came twice, or came late: by topic and subscriber.

**Owed** is every version from the subscription on: from the `subscribed` event where there is one,
else from the first version that came; until `unsubscribed`, else to the end. What was published
shortly before the end (`SETTLE_NS`) is under way and owed to nobody yet.

Versions of a topic are numbered here in the order in which they entered. So what is owed is the
difference of two numbers, and never a row for each version and subscriber that might have met.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, GroupedData, Window
from pyspark.sql import functions as F

from traces import Stage

SETTLE_NS = 10 * 10**9
_WHO = ("topic", "subscriber")
_STREAM = (*_WHO, "publisher", "epoch")
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


def losses(journeys: DataFrame, numbered: DataFrame, end_ns: int) -> DataFrame:
    """By topic and subscriber: owed, delivered, lost, doubled and late."""
    settled_ns = end_ns - SETTLE_NS
    came = _came(journeys, numbered, settled_ns)
    settled = _settled(numbered, settled_ns).agg(F.max("number").alias("settled"))
    first = _updates(numbered).select("topic", F.col("at_ns").alias("first_ns"), "number")
    everyone = (
        came.join(first, ["topic", "first_ns"], "left")
        .groupBy(*came.columns)
        .agg(F.min("number").alias("first"))
        .join(F.broadcast(settled), "topic", "left")
    )
    zero = F.lit(0)
    until = F.coalesce("until", "settled", zero)
    since = F.coalesce("since", "first")
    owed = F.greatest(until - since + 1, zero)
    return everyone.select(
        *_WHO,
        owed.alias("owed"),
        F.coalesce("delivered", zero).alias("delivered"),
        (owed - F.coalesce("of_owed", zero)).alias("lost"),
        *(F.coalesce(name, zero).alias(name) for name in ("doubled", "late")),
    )


def _came(journeys: DataFrame, numbered: DataFrame, settled_ns: int) -> DataFrame:
    """By topic and subscriber: what came, and how much of it was owed; who is owed something."""
    # Once by topic and subscriber, all that follows finds its rows together.
    arrived = (
        journeys.where("entered_ns is not null")
        .select(*_STREAM, "version", "trace_id", "at_ns", "entered_ns")
        .repartition(*_WHO)
    )
    # Read from the highest version down, a row is late if any before it came sooner.
    down = Window.partitionBy(*_STREAM).orderBy(F.desc("version"), "trace_id", "at_ns")
    higher = down.rowsBetween(Window.unboundedPreceding, -1)
    again = F.lag("trace_id").over(down).eqNullSafe(F.col("trace_id"))
    late = F.coalesce(F.min("at_ns").over(higher) < F.col("at_ns"), F.lit(False))
    seen = arrived.select(
        *_WHO, "entered_ns", again.alias("again"), (~again & late).alias("late")
    ).join(_owing(numbered), [*_WHO], "full")
    entered = F.col("entered_ns")
    owed = F.when(F.col("until_ns").isNull(), entered <= settled_ns).otherwise(
        entered < F.col("until_ns")
    ) & (entered >= F.coalesce("since_ns", entered))
    return seen.groupBy(*_WHO, "since", "until").agg(
        F.sum((~F.col("again")).cast("long")).alias("delivered"),
        F.sum((~F.col("again") & owed).cast("long")).alias("of_owed"),
        F.sum(F.col("again").cast("long")).alias("doubled"),
        F.sum(F.col("late").cast("long")).alias("late"),
        F.min("entered_ns").alias("first_ns"),
    )


def never_delivered(journeys: DataFrame, numbered: DataFrame, end_ns: int) -> DataFrame:
    """By topic: updates that entered, and those that came to nobody at all."""
    settled_ns = end_ns - SETTLE_NS
    came = (
        journeys.where(F.col("first_at_node") & (F.col("entered_ns") <= settled_ns))
        .groupBy("topic", "trace_id")
        .agg(F.lit(1).alias("once"))
        .groupBy("topic")
        .agg(F.count("*").alias("came"))
    )
    updates = _settled(numbered, settled_ns).agg(F.count("*").alias("updates"))
    nobody = F.col("updates") - F.coalesce("came", F.lit(0))
    return updates.join(F.broadcast(came), "topic", "left").select(
        "topic", "updates", nobody.alias("to_nobody")
    )


def _updates(numbered: DataFrame) -> DataFrame:
    return numbered.where("mark is null")


def _settled(numbered: DataFrame, settled_ns: int) -> GroupedData:
    """Of each topic, what is no longer under way."""
    return _updates(numbered).where(F.col("at_ns") <= settled_ns).groupBy("topic")


def _owing(numbered: DataFrame) -> DataFrame:
    """From when until when, of those who said when they came and went, and in which numbers."""
    marks = numbered.where("mark is not null")
    came, went = (F.col("mark") == mark for mark in _MARKS)
    number, at = F.col("number"), F.col("at_ns")
    last_came, last_went = (F.max(F.when(mark, at)) for mark in (came, went))
    gone = last_went > F.coalesce(last_came, F.lit(0))
    return marks.groupBy(*_WHO).agg(
        (F.min(F.when(came, number)) + 1).alias("since"),
        F.min(F.when(came, at)).alias("since_ns"),
        F.when(gone, F.max(F.when(went, number))).alias("until"),
        F.when(gone, last_went).alias("until_ns"),
    )
