"""Packages that only some commands need, and the extra of `ablate-blocks` that installs each of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec

from ablate.errors import MissingPackageError

PACKAGES: dict[str, tuple[str, ...]] = {
    "aim": ("aim",),
    "dashboard": ("streamlit", "pandas", "pyarrow"),
    "data": ("datasets", "pyarrow", *(("zstandard",) if sys.version_info < (3, 14) else ())),
    "evaluate": ("lm_eval",),
    "figures": ("vl_convert",),
    "judge": ("pandas", "pyarrow"),
    "mcp": ("mcp",),
    "mlflow": ("mlflow",),
    "notebook": ("pandas",),
    "postgres": ("psycopg",),
    "ray": ("ray", "pyarrow", "pandas"),
    "search": ("optuna", "sklearn", "cmaes"),
    "soap": ("pytorch_optimizer",),
    "tensorboard": ("tensorboard",),
    "trackio": ("trackio",),
    "transformers": ("transformers",),
    "translation": ("sacrebleu",),
    "wandb": ("wandb",),
}
"""Extra to the packages that the commands behind it import."""


_DISTRIBUTIONS = {
    "mlflow": ("mlflow-skinny", "mlflow"),
    "sklearn": ("scikit-learn",),
    "vl_convert": ("vl-convert-python",),
}
"""Packages to the distributions that have them, where the names differ by more than `-` for `_`."""


def missing_packages(extra: str) -> tuple[str, ...]:
    """The packages of an extra that are not installed here; looks for them without importing them.

    A folder of the user's with the name of a package, such as the `wandb` that W&B writes its runs into, is not it.
    """
    return tuple(package for package in PACKAGES[extra] if not _is_installed(package))


def _is_installed(package: str) -> bool:
    if find_spec(package) is None:
        return False
    for name in _DISTRIBUTIONS.get(package, (package,)):
        with suppress(PackageNotFoundError):
            distribution(name)
            return True
    return False


def require(extra: str, what: str, *, where: str = "installed packages", packages: Sequence[str] = ()) -> None:
    """Refuse to continue without the packages of an extra. Call it before each import of such a package.

    Args:
        extra: Its name in pyproject.toml.
        what: What needs it, as the subject of a sentence in the singular.
        where: The file, option or command that asked for it.
        packages: Those of the extra that are needed; all of them if left out.

    Raises:
        MissingPackageError: At least one package of the extra cannot be imported.
    """
    if missing := [name for name in missing_packages(extra) if not packages or name in packages]:
        raise MissingPackageError(
            f"{what} needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed",
            where=where,
            remedy=f"Run `pip install 'ablate-blocks[{extra}]'`.",
        )
