# ruff: noqa: PT009, PT027 - plain unittest, so that nothing has to be installed
"""Tests of stats.py: `python3 -m unittest`."""

import unittest

import stats


class MeanTest(unittest.TestCase):
    def test_mean_of_several_values(self):
        self.assertEqual(stats.mean([1, 2, 3, 6]), 3)

    def test_mean_of_nothing_is_refused(self):
        with self.assertRaises(ValueError):
            stats.mean([])


class MedianTest(unittest.TestCase):
    def test_odd_length(self):
        self.assertEqual(stats.median([9, 1, 5]), 5)

    def test_even_length(self):
        self.assertEqual(stats.median([4, 1, 3, 2]), 2.5)

    def test_two_values(self):
        self.assertEqual(stats.median([10, 20]), 15)

    def test_the_list_is_left_as_it_was(self):
        values = [3, 1, 2]
        stats.median(values)
        self.assertEqual(values, [3, 1, 2])


class SpreadTest(unittest.TestCase):
    def test_spread(self):
        self.assertEqual(stats.spread([3, -1, 4]), 5)


if __name__ == "__main__":
    unittest.main()
