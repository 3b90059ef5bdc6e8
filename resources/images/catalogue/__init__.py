"""The catalogue of images: recipes, apps, labels and what they are built from.

Imported by the images' services and the host worker.
"""
