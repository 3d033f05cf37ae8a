// sums
