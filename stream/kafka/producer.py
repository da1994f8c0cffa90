"""The relay's producer: one a topic, idempotent, never timing a message out."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from stream.config import Config
from stream.kafka.settings import ErrorLog, client_settings

# What the broker says of one record. Anything else it says is about the topic: a code nobody thought of must not
# set good rows aside one by one.
_OF_THE_RECORD = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
# The client's own errors, before anything is sent, are about the record too, but for these.
_TOPIC_WIDE = frozenset(
    {
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._AUTHENTICATION,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._SSL,
    }
)
_LOCAL = range(-200, -99)  # librdkafka's own codes
# The client gave the message back, the record was not judged: read it again from the table.
_CLIENT_ONLY = frozenset(
    {
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._FATAL,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._DESTROY,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)

MOST_THE_BROKER_READS = 100_000_000  # its socket.request.max.bytes is a little more

__all__ = ["KafkaError", "KafkaException", "Message", "TopicProducer", "is_client_only", "is_topic_wide"]


def is_topic_wide(error: KafkaError) -> bool:
    """Whether the error stops the whole topic and says nothing of the record."""
    code = error.code()
    return code in _TOPIC_WIDE or (code not in _LOCAL and code not in _OF_THE_RECORD)


def is_client_only(error: KafkaError) -> bool:
    return error.code() in _CLIENT_ONLY or error.fatal()


class TopicProducer:
    """One producer for one topic: with a shared one, a topic whose follower hung held its leader's other topics.

    Owned by the relay's thread. `produce` and `poll` are librdkafka's own; delivery reports come inside `poll`.
    """

    def __init__(self, config: Config, topic: str, max_message_bytes: int) -> None:
        settings = client_settings(config, f"stream-relay-{topic}")
        self._errors: ErrorLog = settings["error_cb"]
        settings |= {
            "enable.idempotence": True,
            "acks": "all",
            # A finite value reports messages as failed that were written, and lets later ones pass earlier ones.
            "message.timeout.ms": 0,
            # As the Java client does, so that other producers and consumers agree on a key's partition.
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            "linger.ms": 0,
            # The broker judges a record's size: its limit is for what is left after compression, and can be raised.
            "message.max.bytes": MOST_THE_BROKER_READS,
            # The broker's limit holds for the batch: a larger batch is refused whole.
            "batch.size": max(min(262144, max_message_bytes), 1),
            "queue.buffering.max.messages": 20000,
        }
        self._producer = Producer(settings)
        self.produce = self._producer.produce
        self.poll = self._producer.poll
        self.name = config.prefix + topic

    @property
    def fatal(self) -> KafkaError | None:
        """Set once the client can never produce again: make a new one and read the rows again."""
        return self._errors.fatal

    def forget(self) -> None:
        """Give up what the client has not sent yet, without waiting: its rows are still in the table."""
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)
