"""Streams of rows: add a batch, merge two streams, stop and go on, keep sums in place of rows."""

from meanmap.streams.running import RunningEmbedding, feed

__all__ = ["RunningEmbedding", "feed"]
