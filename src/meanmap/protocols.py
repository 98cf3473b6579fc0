"""What objects of the package ask each other, apart from what users call.

Such methods have plain names and docstrings, since one module calls them on objects of another.
Completion leaves them out, and so do the reference and the list of public names. Those of `Kernel`
and `Radial` are also what a kernel of your own may define.
"""

from __future__ import annotations

_LINES = """
Kernel: against between_embeddings bind choices core discrete factors fused_profile gradient
    gradients gram_times has_bandwidth learns of_sum on_vectors open_scales over_columns parts plain
    point_kernel power radial read_points require_numbers resolve_gram rows sample_frequencies
    smooth stein stein_against translates with_names
Radial: at_scale curvature jet profile scaled slope slopes spectral_freedom tangent with_bandwidth
Composite: lead named_parts pairs part_names varying with_parts
Delta: at_scale
Element: as_vector atoms_for certified evaluate example in_space made_of on_atoms
    scaled_coordinates total vector_spaces with_weights written_out
Embedding: beliefs has_mass
Predictive: of part shape
ConditionalEmbedding: fit_checked fitted_operator posterior_regularization reversal reverse_kernels
    sides
ConditionalOperator: answer answer_at computed embedding evaluate evidence factored_weights features
    image intercept inverse mass mean_of middle quiet_features require_shape row_images rows
    sample_weights scatters shape source_coordinates target_rows told with_constant
Space: fit_points is_fitted known_rank mean_coordinates streams support_of
Coordinates: blocks for_each_block
"""

#: By class; those that derive from it have them too.
INTERNAL_NAMES = {
    line.partition(":")[0]: frozenset(line.partition(":")[2].split())
    for line in _LINES.strip().replace("\n    ", " ").split("\n")
}


def internal_names(cls: type) -> frozenset[str]:
    """The names of a class that are not for users."""
    return frozenset().union(*(INTERNAL_NAMES.get(base.__name__, ()) for base in cls.__mro__))


class ForUsers:
    """Completion that shows what users call.

    Examples
    --------
    >>> from meanmap.kernels import Gaussian
    >>> [name for name in dir(Gaussian()) if name.startswith("r")]
    ['relevance', 'replace', 'rescaled', 'resolve']

    """

    def __dir__(self) -> list[str]:
        return sorted(set(super().__dir__()) - internal_names(type(self)))
