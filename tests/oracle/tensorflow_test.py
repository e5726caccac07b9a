#!/usr/bin/env python3
"""tensorflow_test.py WRITE_BUNDLE DIVVYCTL: TensorFlow and safetensors read Divvy's files, and
Divvy reads theirs.

WRITE_BUNDLE (write_bundle.cc) makes a checkpoint of Divvy. Needs the packages tensorflow (or
tensorflow-cpu) and safetensors.
"""
import os
import subprocess
import sys
import tempfile
import unittest

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf

WRITE_BUNDLE, DIVVYCTL = sys.argv.pop(1), sys.argv.pop(1)
EXPECTED = {
    'emb/table': ('float32', [14, 8]), 'emb/table/adam/m': ('float32', [14, 8]), 'emb/table/adam/t': ('int32', [14]), 'many/rows': ('int64', [100000, 1]),
    'many/parts': ('uint8', [5000, 2]), 'cube': ('float64', [3, 2, 2]), 'half': ('float16', [5]), 'brain': ('bfloat16', [5]), 'flag': ('bool', [2]),
    'byte': ('int8', [3]), 'scalar': ('float32', []), 'empty': ('float32', [0, 16]), 'weird é name': ('int32', [2, 1]),
}


SAFETENSORS_TYPES = {'float32': 'F32', 'int32': 'I32', 'int64': 'I64', 'uint8': 'U8', 'float64': 'F64', 'float16': 'F16', 'bfloat16': 'BF16', 'bool': 'BOOL', 'int8': 'I8'}


def checkpoint(*words):
  """The output of `divvyctl checkpoint WORDS`."""
  return subprocess.run([DIVVYCTL, 'checkpoint', *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def numbers(dtype, shape):
  flat = np.arange(int(np.prod(shape))) % 100 + 1
  return flat.reshape(shape).astype(tf.as_dtype(dtype).as_numpy_dtype)


class TensorFlowTest(unittest.TestCase):

  @classmethod
  def setUpClass(cls):
    cls.folder = tempfile.TemporaryDirectory(dir=os.environ.get('TEST_TMPDIR'))
    subprocess.run([WRITE_BUNDLE, cls.folder.name], check=True)
    cls.prefix = tf.train.latest_checkpoint(cls.folder.name)
    cls.reader = tf.train.load_checkpoint(cls.folder.name)

  @classmethod
  def tearDownClass(cls):
    cls.folder.cleanup()

  def test_the_newest_checkpoint_is_found(self):
    self.assertEqual(os.path.join(self.folder.name, 'ckpt-1-1'), self.prefix)

  def test_all_tensors_are_there_with_their_types_and_shapes(self):
    shapes = self.reader.get_variable_to_shape_map()
    types = {name: dtype.name for name, dtype in self.reader.get_variable_to_dtype_map().items()}
    self.assertEqual({'_divvy/job', '_divvy/finished_steps', *EXPECTED}, set(shapes))
    for name, (dtype, shape) in EXPECTED.items():
      self.assertEqual((dtype, shape), (types[name], shapes[name]))

  def test_each_tensor_is_read_whole(self):
    for name, (dtype, shape) in EXPECTED.items():
      with self.subTest(name):
        value = self.reader.get_tensor(name)
        np.testing.assert_array_equal(numbers(dtype, shape), value)

  def test_finished_steps_is_a_number_for_people(self):
    self.assertEqual(12345, self.reader.get_tensor('_divvy/finished_steps'))

  def test_rows_are_read_across_slices(self):
    for name, first, count in [('emb/table', 2, 7), ('emb/table', 0, 14), ('many/rows', 60, 8200), ('many/parts', 4990, 9), ('cube', 0, 2)]:
      with self.subTest(name):
        dtype, shape = EXPECTED[name]
        rest = ''.join(f':0,{size}' for size in shape[1:])
        spec = f'{" ".join(map(str, shape))} {first},{count}{rest}'
        (value,) = tf.raw_ops.RestoreV2(prefix=self.prefix, tensor_names=[name], shape_and_slices=[spec], dtypes=[tf.as_dtype(dtype)])
        np.testing.assert_array_equal(numbers(dtype, shape)[first:first + count], value)

  def test_a_variable_is_initialized_from_it(self):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
      table = tf.compat.v1.get_variable('table', [14, 8], use_resource=True)
      tf.compat.v1.train.Saver({'emb/table': table}).restore(session, self.prefix)
      np.testing.assert_array_equal(numbers('float32', [14, 8]), session.run(table))

  def test_an_export_without_our_own_tensors_is_read(self):
    clean = os.path.join(self.folder.name, 'clean', 'model')
    checkpoint('export', self.prefix, clean, '--format=bundle')
    reader = tf.train.load_checkpoint(clean)
    self.assertEqual(set(EXPECTED), set(reader.get_variable_to_shape_map()))
    for name, (dtype, shape) in EXPECTED.items():
      np.testing.assert_array_equal(numbers(dtype, shape), reader.get_tensor(name))

  def test_what_tensorflow_writes_is_whole_and_comes_through(self):
    prefix, copy = os.path.join(self.folder.name, 'theirs', 'ckpt'), os.path.join(self.folder.name, 'theirs', 'copy')
    layer = tf.Module()
    layer.kernel, layer.steps = tf.Variable(tf.random.normal([300, 20])), tf.Variable(7, dtype=tf.int64)
    written = tf.train.Checkpoint(layer=layer).save(prefix)
    self.assertIn('whole: ', checkpoint('verify', written))  # also its graph, which is a string
    checkpoint('import', written, copy)
    theirs, ours = tf.train.load_checkpoint(written), tf.train.load_checkpoint(copy)
    numbers_of = {name for name, dtype in theirs.get_variable_to_dtype_map().items() if dtype != tf.string}
    self.assertEqual(numbers_of, set(ours.get_variable_to_shape_map()))
    for name in numbers_of:
      np.testing.assert_array_equal(theirs.get_tensor(name), ours.get_tensor(name))


class SafetensorsTest(unittest.TestCase):

  @classmethod
  def setUpClass(cls):
    cls.folder = tempfile.TemporaryDirectory(dir=os.environ.get('TEST_TMPDIR'))
    subprocess.run([WRITE_BUNDLE, cls.folder.name], check=True)

  @classmethod
  def tearDownClass(cls):
    cls.folder.cleanup()

  def read(self, folder):
    tensors = {}
    for name in os.listdir(folder):
      if name.endswith('.safetensors'):
        with open(os.path.join(folder, name), 'rb') as file:
          tensors.update(safetensors.deserialize(file.read()))
    return tensors

  def test_its_reader_takes_our_exports_in_one_file_and_in_several(self):
    for name, flags in [('one', []), ('several', ['--max_shard_bytes=10000'])]:
      with self.subTest(name):
        out = os.path.join(self.folder.name, name)
        files = checkpoint('export', self.folder.name, out, *flags).split()
        self.assertEqual(1 if name == 'one' else 5, len(files))  # 5: four files and their index
        tensors = self.read(out)
        self.assertEqual(set(EXPECTED), set(tensors))
        for tensor, (dtype, shape) in EXPECTED.items():
          self.assertEqual((SAFETENSORS_TYPES[dtype], shape), (tensors[tensor]['dtype'], list(tensors[tensor]['shape'])))
          self.assertEqual(numbers(dtype, shape).tobytes(), bytes(tensors[tensor]['data']))

  def test_we_write_the_bytes_that_it_writes(self):
    values = {'b': np.arange(3, dtype=np.int8), 'a': np.arange(6, dtype=np.float32).reshape(2, 3), 'c': np.array(1.5)}
    theirs, bundle, ours = (os.path.join(self.folder.name, name) for name in ['t.safetensors', 'b', 'same'])
    safetensors.numpy.save_file(values, theirs)
    checkpoint('import', theirs, bundle)
    reader = tf.train.load_checkpoint(bundle)
    for name, value in values.items():
      np.testing.assert_array_equal(value, reader.get_tensor(name))
    checkpoint('export', bundle, ours)
    with open(theirs, 'rb') as a, open(os.path.join(ours, 'model.safetensors'), 'rb') as b:
      self.assertEqual(a.read(), b.read())


if __name__ == '__main__':
  unittest.main(verbosity=2)
