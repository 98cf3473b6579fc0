"""Conditional distributions as linear operators: P(Y|X), its posteriors and their rules."""

from meanmap.conditional.calculus import bayes_rule, chain_rule, sum_rule
from meanmap.conditional.estimator import ConditionalEmbedding
from meanmap.conditional.operator import ConditionalOperator
from meanmap.conditional.predictive import Predictive
from meanmap.conditional.scores import CalibratedIntervals, Relevance

__all__ = [
    "CalibratedIntervals",
    "ConditionalEmbedding",
    "ConditionalOperator",
    "Predictive",
    "Relevance",
    "bayes_rule",
    "chain_rule",
    "sum_rule",
]
