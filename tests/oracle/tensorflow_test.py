#!/usr/bin/env python3
"""tensorflow_test.py WRITE_BUNDLE: TensorFlow reads what write_bundle.cc has written as a checkpoint of ours. Needs the package tensorflow (or tensorflow-cpu)."""
import os
import subprocess
import sys
import tempfile
import unittest

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
import numpy as np
import tensorflow as tf

WRITE_BUNDLE = sys.argv.pop(1)
EXPECTED = {
    'emb/table': ('float32', [14, 8]), 'emb/table/adam/m': ('float32', [14, 8]), 'emb/table/adam/t': ('int32', [14]), 'many/rows': ('int64', [100000, 1]),
    'many/parts': ('uint8', [5000, 2]), 'cube': ('float64', [3, 2, 2]), 'half': ('float16', [5]), 'brain': ('bfloat16', [5]), 'flag': ('bool', [2]),
    'byte': ('int8', [3]), 'scalar': ('float32', []), 'empty': ('float32', [0, 16]), 'weird é name': ('int32', [2, 1]),
}


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


if __name__ == '__main__':
  unittest.main(verbosity=2)
