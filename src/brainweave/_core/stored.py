"""How a class declares what files keep of it."""

from collections.abc import Iterator
from typing import Any, ClassVar


class Stored:
    """Base of the classes that model files hold.

    A class declares in ``_stored`` what files keep of it, by name, in addition to what
    its bases declare. Of an aligner these are the attributes that it learns (its
    parameters are kept anyway), of other classes the arguments of the constructor.
    Values are checked against the declared kinds when a file is loaded:

    - a type, such as ``int`` or ``Graph``;
    - the dimensions of an array of floats, ``"n K"``: the same letter is the same size,
      a number that size. ``"n of int"`` holds integers, ``"n of real"`` any numbers,
      ``"n of any"`` numbers or labels; ``"n K of sparse"`` is a sparse matrix;
    - ``[kind]`` or ``(kind,)``, a list or a tuple of such values, each with sizes of
      its own;
    - a function that returns whether it accepts the value;
    - ``None``, for what files do not keep.

    A name that ends in ``?`` may be missing or None.
    """

    _stored: ClassVar[dict[str, Any]] = {}
    #: the package's own classes, by name: files hold no others
    _known: ClassVar[dict[str, type["Stored"]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "_stored" in vars(cls) and cls.__module__.startswith("brainweave."):
            Stored._known[cls.__name__] = cls

    @classmethod
    def _stored_kinds(cls) -> dict[str, Any]:
        """Return the kinds of all that files keep, those of base classes first."""
        kinds: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            for key, kind in vars(base).get("_stored", {}).items():
                name = key.rstrip("?")
                for known in (name, f"{name}?"):
                    kinds.pop(known, None)
                kinds[key] = kind
        return kinds

    def _stored_form(self) -> Any:
        """Return the object to write in place of this one."""
        return self

    def _stored_value(self, name: str) -> Any:
        """Return what files keep under a name."""
        return getattr(self, name)

    def _misfits(self) -> Iterator[str]:
        """Yield what does not fit together in loaded values."""
        return iter(())
