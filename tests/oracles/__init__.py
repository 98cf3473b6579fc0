"""Slow, obvious truth: the papers' dense formulas in plain NumPy, errata corrected.

Nothing here imports the library. Every function is a direct transcription of an equation, favouring
loops and full matrices over speed, so that it can be checked against the paper by eye. Labels used
in names and docstrings:

* 000: Song, Fukumizu and Gretton (2013), Kernel embeddings of conditional distributions
* 001: Song, Huang, Smola and Fukumizu (2009), Hilbert space embeddings of conditional distributions
* 002: Fukumizu, Song and Gretton (2013), Kernel Bayes' rule
* 003: the encyclopedia article on kernel embeddings of distributions
* 004: the lecture notes on kernel graphical models

Conventions
-----------
One direction throughout, that of 002: the conditional is P(Y|X) and priors are on X, whatever
letters the paper uses. The sample is ``(x_i, y_i)`` with weights ``w_i`` that sum to one
(``w=None``: uniform, ``1/n``); ``W = diag(w)``.

=============  =====================================================================
``K``          Gram matrix of the sample's X, (n, n)
``G``          Gram matrix of the sample's Y, (n, n)
``K_prior``    ``k(x_i, x~_j)``, sample against the prior's atoms, (n, m)
``alpha``      the prior's weights on its atoms, (m,)
``k_x, k_y``   sample against queries, (n,) for one query or (n, q) for several
``lam``        regularisation on the operator's scale: ``C_XX + lam I`` is ``K + n lam I``
``delta``      second regularisation, on the scale of ``C_WW**2`` (squared) or ``C_WW``
=============  =====================================================================

000 writes ``K + lambda I``: its lambda is ``n * lam`` here. Regularisation 0 means pseudo-inverse.
Weights come back with the shape of the query: (n,) or (n, q), one column per query.

Functions called ``operator_*`` take explicit feature matrices instead, one row per point
(``k(x, x') = phi(x) . phi(x')``), and write the operator with sums of outer products: they are what
the Gram forms are checked against. Functions called ``printed_*`` are a paper's formula exactly as
printed where it is wrong, kept so that tests can show that the correction matters.
"""

# A test names the part it uses (`from oracles.kernels import gaussian`); here they are together.
from oracles.adaptation import *  # noqa: F403
from oracles.causal import *  # noqa: F403
from oracles.comparison import *  # noqa: F403
from oracles.conditional import *  # noqa: F403
from oracles.density import *  # noqa: F403
from oracles.dynamics import *  # noqa: F403
from oracles.embeddings import *  # noqa: F403
from oracles.errata import *  # noqa: F403
from oracles.graphical import *  # noqa: F403
from oracles.kernels import *  # noqa: F403
from oracles.learning import *  # noqa: F403
from oracles.likelihood_free import *  # noqa: F403
from oracles.linalg import *  # noqa: F403
from oracles.normals import *  # noqa: F403
from oracles.operators import *  # noqa: F403
from oracles.rules import *  # noqa: F403
from oracles.statistics import *  # noqa: F403
from oracles.tables import *  # noqa: F403
