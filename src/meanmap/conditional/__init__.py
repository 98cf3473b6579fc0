"""Conditional distributions as linear operators: P(Y|X), its posteriors and their rules."""

from meanmap.conditional.calculus import bayes_rule, chain_rule, sum_rule
from meanmap.conditional.estimator import ConditionalEmbedding
from meanmap.conditional.operator import ConditionalOperator

__all__ = ["ConditionalEmbedding", "ConditionalOperator", "bayes_rule", "chain_rule", "sum_rule"]
