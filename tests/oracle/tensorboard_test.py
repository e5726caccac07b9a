#!/usr/bin/env python3
"""tensorboard_test.py WRITE_EVENTS DIGITS: TensorBoard's own reader finds in the event files what
write_events.cc has written, and what a job of the program DIGITS tells. Needs the package
tensorboard. An image is also decoded, if there is Pillow."""
import io
import math
import os
import subprocess
import sys
import tempfile
import unittest

from tensorboard import context
from tensorboard.backend.event_processing import data_provider
from tensorboard.backend.event_processing import plugin_event_multiplexer
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams import backend_context
from tensorboard.plugins.hparams import list_session_groups
from tensorboard.plugins.image import images_plugin
from tensorboard.plugins.histogram import histograms_plugin
from tensorboard.util import tensor_util

WRITE_EVENTS = sys.argv.pop(1)
DIGITS = sys.argv.pop(1)


def load(folder):
  """The runs below a folder, as TensorBoard's server reads them."""
  runs = plugin_event_multiplexer.EventMultiplexer(
      tensor_size_guidance={'scalars': 0, 'histograms': 0, 'images': 0})
  runs.AddRunsFromDirectory(folder)
  runs.Reload()
  return runs


def backend(runs, folder):
  """What TensorBoard's plugins are given to answer the browser."""
  provider = data_provider.MultiplexerDataProvider(runs, folder)
  return base_plugin.TBContext(data_provider=provider, logdir=folder)


def session_groups(runs, folder):
  """The rows of the tab HPARAMS, with all metrics."""
  hparams = backend_context.Context(backend(runs, folder))
  request_context = context.RequestContext()
  experiment = hparams.experiment_from_metadata(
      request_context, '', True, hparams.hparams_metadata(request_context, ''), [], None)
  request = api_pb2.ListSessionGroupsRequest(
      start_index=0, slice_size=10, include_metrics=True,
      allowed_statuses=[api_pb2.STATUS_UNKNOWN, api_pb2.STATUS_RUNNING, api_pb2.STATUS_SUCCESS])
  groups = list_session_groups.Handler(
      request_context, hparams, '', request).run().session_groups
  return experiment, groups


def number_of(value):
  return getattr(value, value.WhichOneof('kind'))


class TensorBoardTest(unittest.TestCase):

  @classmethod
  def setUpClass(cls):
    cls.folder = tempfile.TemporaryDirectory(dir=os.environ.get('TEST_TMPDIR'))
    subprocess.run([WRITE_EVENTS, cls.folder.name], check=True)
    cls.runs = load(cls.folder.name)

  @classmethod
  def tearDownClass(cls):
    cls.folder.cleanup()

  def points(self, run, tag):
    return [(event.step, event.tensor_proto) for event in self.runs.Tensors(run, tag)]

  def scalars(self, run, tag):
    return [(step, float(tensor_util.make_ndarray(tensor))) for step, tensor in self.points(run, tag)]

  def test_each_directory_is_a_run(self):
    self.assertEqual({'train', 'validation', 'cut', 'others', 'others/train', 'others/worker/0'},
                     set(self.runs.Runs()))

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

  def buckets(self, tag):
    plugin = histograms_plugin.HistogramsPlugin(backend(self.runs, self.folder.name))
    points, _ = plugin.histograms_impl(context.RequestContext(), tag, 'others/train', '')
    return [(step, buckets) for _, step, buckets in points]

  def test_histograms_are_given_to_their_plugin(self):
    self.assertEqual({'weights/w', 'same', 'none'},
                     set(self.runs.PluginRunToTagToContent('histograms')['others/train']))
    self.assertEqual([(1, [[1, 1.5, 1], [1.5, 2, 1], [2, 2.5, 0], [2.5, 3, 1]]),
                      (2, [[2, 2.5, 1], [2.5, 3, 1], [3, 3.5, 0], [3.5, 4, 1]])],
                     self.buckets('weights/w'))
    self.assertEqual([(1, [[7, 7, 0], [7, 7, 0], [7, 7, 2]])], self.buckets('same'))
    self.assertEqual([(1, [[0, 0, 0]] * 3)], self.buckets('none'))

  def images(self, tag):
    provider = data_provider.MultiplexerDataProvider(self.runs, self.folder.name)
    context_of_request = context.RequestContext()
    read = provider.read_blob_sequences(
        context_of_request, experiment_id='', plugin_name='images', downsample=10)
    ((datum),) = read['others/train'][tag]
    blobs = [provider.read_blob(context_of_request, blob_key=value.blob_key)
             for value in datum.values]
    return datum.step, blobs

  def test_images_are_given_to_their_plugin(self):
    self.assertEqual({'gray', 'color'},
                     set(self.runs.PluginRunToTagToContent('images')['others/train']))
    step, (width, height, first, second) = self.images('gray')
    self.assertEqual((1, b'2', b'1'), (step, width, height))
    self.assertTrue(first.startswith(b'\x89PNG') and second.startswith(b'\x89PNG'))
    plugin = images_plugin.ImagesPlugin(backend(self.runs, self.folder.name))
    shown = plugin._image_response_for_run(
        context.RequestContext(), '', 'others/train', 'gray', sample=1)
    self.assertEqual([1], [one['step'] for one in shown])

  def test_images_are_what_a_decoder_expects(self):
    try:
      from PIL import Image
    except ImportError:
      self.skipTest('Pillow is not installed')
    _, (_, _, first, second) = self.images('gray')
    self.assertEqual([0, 255], list(Image.open(io.BytesIO(first)).tobytes()))
    self.assertEqual([10, 20], list(Image.open(io.BytesIO(second)).tobytes()))
    _, (_, _, color) = self.images('color')
    image = Image.open(io.BytesIO(color))
    self.assertEqual(('RGB', (2, 1)), (image.mode, image.size))
    self.assertEqual([0, 127, 255, 255, 0, 63], list(image.tobytes()))

  def test_hyperparameters_are_a_row_of_their_tab_with_the_metrics_of_the_runs_below(self):
    experiment, groups = session_groups(self.runs, self.folder.name)
    self.assertEqual({'adam', 'rate', 'shape'}, {info.name for info in experiment.hparam_infos})
    (group,) = groups
    self.assertEqual({'adam': True, 'rate': 0.5, 'shape': 'wide'},
                     {name: number_of(value) for name, value in group.hparams.items()})
    (session,) = group.sessions
    self.assertEqual('others', session.name)
    self.assertEqual({('train', 'loss'): 0.125, ('worker/0', 'steps_per_second'): 20},
                     {(value.name.group, value.name.tag): value.value
                      for value in session.metric_values})


class JobTest(unittest.TestCase):
  """A job of two workers and two parameter servers in one process."""

  @classmethod
  def setUpClass(cls):
    cls.folder = tempfile.TemporaryDirectory(dir=os.environ.get('TEST_TMPDIR'))
    subprocess.run(
        [DIGITS, '--workers=2', '--ps=2', '--epochs=4', '--tensorboard_dir=' + cls.folder.name,
         '--tensorboard_histograms=1s', '--report_every=200ms'], check=True, timeout=120)
    cls.runs = load(cls.folder.name)

  @classmethod
  def tearDownClass(cls):
    cls.folder.cleanup()

  def histogram(self, tag):
    """The buckets of the first point and the sum of their counts."""
    buckets = tensor_util.make_ndarray(self.runs.Tensors('train', tag)[0].tensor_proto)
    return buckets, buckets[:, 2].sum()

  def test_weights_gradients_and_staleness_have_histograms(self):
    tags = set(self.runs.PluginRunToTagToContent('histograms')['train'])
    kinds = {tag.split('/')[0] for tag in tags}
    self.assertEqual({'weights', 'gradients', 'staleness'}, kinds)
    weights = {tag[len('weights/'):] for tag in tags if tag.startswith('weights/')}
    gradients = {tag[len('gradients/'):] for tag in tags if tag.startswith('gradients/')}
    self.assertEqual(weights, gradients)
    for tag in tags:
      buckets, count = self.histogram(tag)
      self.assertEqual(3, buckets.shape[1], tag)
      self.assertGreater(count, 0, tag)
    print('histograms:', ', '.join(sorted(tags)))

  def test_each_worker_is_a_run(self):
    for run in ('worker/0', 'worker/1'):
      self.assertEqual({'steps_per_second', 'step_seconds'},
                       set(self.runs.PluginRunToTagToContent('scalars')[run]))
      rates = [float(tensor_util.make_ndarray(event.tensor_proto))
               for event in self.runs.Tensors(run, 'steps_per_second')]
      self.assertGreater(max(rates), 0)
      print(run, 'steps/s:', ', '.join('%.4g' % rate for rate in rates[:5]))

  def test_the_flags_of_the_program_are_its_hyperparameters(self):
    experiment, (group,) = session_groups(self.runs, self.folder.name)
    values = {name: number_of(value) for name, value in group.hparams.items()}
    self.assertEqual(4, values['epochs'])
    metrics = {(value.name.group, value.name.tag) for value in group.sessions[0].metric_values}
    self.assertIn(('', 'loss'), metrics)
    print('hparams:', values)


if __name__ == '__main__':
  unittest.main(verbosity=2)
