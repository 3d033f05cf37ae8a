"""What the kernel is checked against."""


def pnpoly(point, corner):
    """Whether each point lies in the polygon, by all edges one after another; NumPy or CuPy arrays."""
    x, y = point[:, 0], point[:, 1]
    inside = abs(x) < 0  # nowhere yet
    for edge in range(len(corner)):
        start, end = corner[edge - 1], corner[edge]
        across, up = end - start
        meets = (start[1] > y) != (end[1] > y)
        inside ^= meets & (((x - start[0]) * up < across * (y - start[1])) == (up > 0))
    return inside
