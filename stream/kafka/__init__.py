"""Kafka: the only user of confluent_kafka. `config.prefix` is put before names here and nowhere else."""
