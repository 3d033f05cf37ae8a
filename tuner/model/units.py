"""Numbers of documents and rows: to mypy floats and whole numbers; ``typed`` holds what is read to bounds."""

from typing import Annotated

WIDEST = 1e60
"""None but 0 is beyond it, or nearer to 0 than its inverse: quotients and products of some are finite."""

Number = Annotated[float, -WIDEST]
Amount = Annotated[float, 0.0]
Positive = Annotated[float, 1 / WIDEST]
Count = Annotated[int, 0]
