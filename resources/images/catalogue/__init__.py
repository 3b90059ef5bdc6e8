"""The catalogue of images: recipes, apps, labels and what they are built from.

Used by gpuplatform.
"""
