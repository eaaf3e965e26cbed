"""The bundled data sets by name: each makes a folder with train, valid and perhaps test data, a README and `meta.json`."""

from ampc.data.recipes import babi15, images, list_reduction, made_up, qm9, sst
from ampc.data.recipes.base import Option, Product, Recipe

RECIPES: dict[str, Recipe] = {
    r.name: r
    for r in (list_reduction.RECIPE, images.DIGITS, images.MNIST, sst.RECIPE, babi15.RECIPE, babi15.INFLATED_RECIPE, qm9.RECIPE, *made_up.RECIPES)
}

__all__ = ["RECIPES", "Option", "Product", "Recipe"]
