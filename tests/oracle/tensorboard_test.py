#!/usr/bin/env python3
"""tensorboard_test.py WRITE_EVENTS: TensorBoard's own reader finds in the event files what
write_events.cc has written. Needs the package tensorboard."""
import math
import os
import subprocess
import sys
import tempfile
import unittest

from tensorboard.backend.event_processing import plugin_event_multiplexer
from tensorboard.util import tensor_util

WRITE_EVENTS = sys.argv.pop(1)


class TensorBoardTest(unittest.TestCase):

  @classmethod
  def setUpClass(cls):
    cls.folder = tempfile.TemporaryDirectory(dir=os.environ.get('TEST_TMPDIR'))
    subprocess.run([WRITE_EVENTS, cls.folder.name], check=True)
    cls.runs = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance={'scalars': 0})
    cls.runs.AddRunsFromDirectory(cls.folder.name)
    cls.runs.Reload()

  @classmethod
  def tearDownClass(cls):
    cls.folder.cleanup()

  def points(self, run, tag):
    return [(event.step, event.tensor_proto) for event in self.runs.Tensors(run, tag)]

  def scalars(self, run, tag):
    return [(step, float(tensor_util.make_ndarray(tensor))) for step, tensor in self.points(run, tag)]

  def test_each_directory_is_a_run(self):
    self.assertEqual({'train', 'validation', 'cut'}, set(self.runs.Runs()))

  def test_scalars_belong_to_the_scalar_plugin(self):
    self.assertEqual({'loss', 'train/odd'}, set(self.runs.PluginRunToTagToContent('scalars')['train']))

  def test_every_step_is_there_once_though_the_job_went_back_to_step_59(self):
    losses = self.scalars('train', 'loss')
    self.assertEqual(list(range(1, 121)), [step for step, _ in losses])
    for step, loss in losses:
      self.assertAlmostEqual(1 / step, loss, places=6)
    self.assertEqual(list(range(1, 121, 2)), [step for step, _ in self.scalars('train', 'train/odd')])

  def test_what_is_not_a_number_is_kept(self):
    ((step, loss),) = self.scalars('validation', 'loss')
    self.assertEqual(100, step)
    self.assertTrue(math.isnan(loss))
    self.assertEqual([(100, 0.5)], self.scalars('validation', 'accuracy'))

  def test_the_configuration_is_a_text(self):
    self.assertEqual({'configuration'}, set(self.runs.PluginRunToTagToContent('text')['train']))
    ((_, text),) = self.points('train', 'configuration')
    self.assertIn(b'| epochs | 2 |', text.string_val[0])

  def test_a_record_that_is_cut_off_loses_no_other(self):
    self.assertEqual([(1, 1.0)], self.scalars('cut', 'loss'))


if __name__ == '__main__':
  unittest.main(verbosity=2)
