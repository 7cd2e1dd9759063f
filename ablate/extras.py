"""Packages that only some commands need, and the extra of `ablate-blocks` that installs each of them."""

from __future__ import annotations

from importlib.util import find_spec

from ablate.errors import MissingPackageError

PACKAGES: dict[str, tuple[str, ...]] = {
    "dashboard": ("streamlit", "plotly", "pandas", "pyarrow"),
    "evaluate": ("lm_eval",),
    "figures": ("matplotlib",),
    "mlflow": ("mlflow",),
    "notebook": ("pandas",),
    "search": ("optuna", "sklearn", "cmaes"),
    "soap": ("pytorch_optimizer",),
    "tensorboard": ("tensorboard",),
    "transformers": ("transformers",),
    "translation": ("sacrebleu",),
    "wandb": ("wandb",),
}
"""Extra to the packages that the commands behind it import."""


def missing_packages(extra: str) -> tuple[str, ...]:
    """The packages of an extra that cannot be imported here; looks for them without importing them."""
    return tuple(package for package in PACKAGES[extra] if find_spec(package) is None)


def require(extra: str, what: str, *, where: str | None = None) -> None:
    """Refuse to continue without the packages of an extra.

    Args:
        extra: Its name in pyproject.toml.
        what: What needs it, as the subject of a sentence in the singular.
        where: The file, option or command that asked for it.

    Raises:
        MissingPackageError: At least one package of the extra cannot be imported.
    """
    if missing := missing_packages(extra):
        raise MissingPackageError(
            f"{what} needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed",
            where=where,
            remedy=f"Run `pip install 'ablate-blocks[{extra}]'`.",
        )
