"""What is scored: picture sets from files or bundled, corruptions, arrays, and files that are written whole."""

from nescio.data.atomic import check_writable, replacing
from nescio.data.class_names import read_class_names
from nescio.data.corruptions import CORRUPTIONS, corrupt
from nescio.data.digits import Digits, Split, digits
from nescio.data.files import read_npz
from nescio.data.not_digits import NOT_DIGITS, drawn_letters, photo_patches
from nescio.data.pictures import PictureSet, subset, to_float
from nescio.data.sets import SETS, load_set
from nescio.data.soft_labels import soft_labels
from nescio.data.tables import check_ending, read_table, write_table

__all__ = [
    "load_set",
    "PictureSet",
    "SETS",
    "subset",
    "to_float",
    "soft_labels",
    "corrupt",
    "CORRUPTIONS",
    "digits",
    "Digits",
    "Split",
    "photo_patches",
    "drawn_letters",
    "NOT_DIGITS",
    "read_npz",
    "read_class_names",
    "read_table",
    "write_table",
    "check_ending",
    "check_writable",
    "replacing",
]
