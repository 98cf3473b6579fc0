"""Objects in files: `save` and `load`, without pickle.

A file is a zip archive that `numpy.load` can open too: one `.npy` member per array,
and `manifest.json`, a table of nodes. A node is a list, a dict, an array, an object of this library
with its attributes …; numbers and text stand in it as they are, everything else as `{"node": i}`
with i earlier in the table. So what is shared stays shared, and no file can be cyclic or endless.

Loading makes an object without calling anything of the file's choice: its class is looked up by
name among the classes of this package, its attributes are set one by one, and they are plain data.
Members are stored uncompressed, so that nothing can unfold to more than the file's own size.

What a class must do to be stored: nothing, if it is a dataclass or a scikit-learn estimator of this
package; else its name, or its base's, goes into `PLAIN`. Attributes that its `_functions` names may
be functions of the user's: a file has `LeftOut` in their place. Its state is its `__dict__` without
cached properties, or what its own `__getstate__` says. When a change makes older files unreadable,
raise `FORMAT`, and translate the older manifests where `load` reads their version.
"""

from meanmap.persistence.classes import LeftOut
from meanmap.persistence.files import FORMAT, MAX_BYTES, fingerprint, load, save

__all__ = ["FORMAT", "MAX_BYTES", "LeftOut", "fingerprint", "load", "save"]
