"""GLD-23k, ImageNet and COCO: readers of the real layouts, and written sets in the same layouts."""

import json
import pickle

import numpy as np
import pytest

from harness.core.errors import DataSetError
from harness.workloads.data.coco import COCO
from harness.workloads.data.photographs import GLD23K, IMAGENET_VAL

Image = pytest.importorskip("PIL.Image")
SAMPLES = 120


def save_picture(path, size=(30, 20)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (10, 200, 30)).save(path)


@pytest.fixture
def landmarks(tmp_path):
    """Three landmarks, listed as in the published split."""
    directory = tmp_path / "gld23k"
    for name in ("aa", "bb", "cc"):
        save_picture(directory / "images" / f"{name}.jpg")
    (directory / "data_user_dict").mkdir()
    lines = ["user_id,image_id,class", "0,aa,7", "0,bb,202", "1,cc,0"]
    (directory / "data_user_dict" / "gld23k_user_dict_train.csv").write_text("\n".join(lines))
    return directory


def test_real_landmarks_are_found_and_read_with_their_classes(landmarks):
    samples = GLD23K.open(GLD23K.find_real(landmarks.parent))
    assert [samples[index][1] for index in range(len(samples))] == [7, 202, 0]
    assert samples[1][0].size == (30, 20)
    assert [path.name for path in samples.files([2, 0, 2])] == ["gld23k_user_dict_train.csv", "cc.jpg", "aa.jpg"]


@pytest.mark.parametrize("text", ["image,label\naa,3", "image_id,class\naa,tower", "image_id,class\naa"])
def test_a_landmark_that_is_listed_but_missing_and_a_damaged_list_are_named(landmarks, text):
    (landmarks / "images" / "bb.jpg").unlink()
    with pytest.raises(DataSetError, match=r"bb\.jpg"):
        GLD23K.open(landmarks)[1]
    path = landmarks / "data_user_dict" / "gld23k_user_dict_train.csv"
    path.write_text(text)
    with pytest.raises(DataSetError, match=str(path)):
        GLD23K.open(landmarks)


def test_a_folder_of_classes_is_read_in_the_order_of_their_names(tmp_path):
    for name in ("n02/b.JPEG", "n01/a.jpeg", "n02/a.png", "n10/c.jpg"):
        save_picture(tmp_path / "imagenet" / "val" / name)
    (tmp_path / "imagenet" / "val" / "n01" / "notes.txt").write_text("no picture")
    samples = IMAGENET_VAL.open(IMAGENET_VAL.find_real(tmp_path))
    assert [samples[index][1] for index in range(len(samples))] == [0, 1, 1, 2]
    assert [path.name for path in samples.files([1, 2])] == ["a.png", "b.JPEG"]


@pytest.fixture
def objects(tmp_path):
    """Two pictures, one with two objects and a crowd, one with none; category numbers have gaps, as COCO's have."""
    directory = tmp_path / "coco"
    for name in ("one.jpg", "two.jpg"):
        save_picture(directory / "train2017" / name)
    content = {
        "images": [{"id": 9, "file_name": "one.jpg"}, {"id": 4, "file_name": "two.jpg"}],
        "annotations": [
            {"image_id": 4, "category_id": 90, "bbox": [1, 2, 3, 4]},
            {"image_id": 4, "category_id": 1, "bbox": [0, 0, 30, 20], "iscrowd": 1},
            {"image_id": 4, "category_id": 13, "bbox": [5.5, 6, 7, 8], "iscrowd": 0},
        ],
        "categories": [{"id": 90}, {"id": 1}, {"id": 13}],
    }
    (directory / "annotations").mkdir()
    (directory / "annotations" / "instances_minitrain2017.json").write_text(json.dumps(content))
    return directory


def test_real_objects_are_read_with_categories_counted_from_zero(objects):
    samples = COCO.open(COCO.find_real(objects.parent))
    assert len(samples) == 2
    assert samples[0].classes.tolist() == []
    assert samples[0].boxes.shape == (0, 4)
    assert samples[1].classes.tolist() == [2, 1]
    assert samples[1].boxes.tolist() == [[1, 2, 3, 4], [5.5, 6, 7, 8]]
    assert [path.name for path in samples.files([1])] == ["instances_minitrain2017.json", "two.jpg"]


def change(content, part, **values):
    content[part][0].update(values)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content.pop("images"),
        lambda content: change(content, "annotations", image_id=5),
        lambda content: change(content, "annotations", category_id=5),
        lambda content: change(content, "annotations", bbox=[1, 2, 3]),
        lambda content: content.update(categories=[{"id": number} for number in range(1, 95)]),
    ],
    ids=["no pictures", "unknown picture", "unknown category", "half a box", "too many categories"],
)
def test_a_damaged_list_of_objects_is_named(objects, damage):
    path = objects / "annotations" / "instances_minitrain2017.json"
    content = json.loads(path.read_text())
    damage(content)
    for text in (json.dumps(content), json.dumps(content)[:100]):
        path.write_text(text)
        with pytest.raises(DataSetError, match=str(path)):
            COCO.open(objects)


WRITTEN = pytest.mark.parametrize(
    ("data_set", "mean_bytes"),
    [(GLD23K, 122_487), (IMAGENET_VAL, 134_000), (COCO, 156_000)],
    ids=["landmarks", "imagenet", "coco"],
)


@WRITTEN
def test_written_pictures_have_the_sizes_of_the_real_ones(prepare_samples, data_set, mean_bytes):
    prepared = prepare_samples(data_set, SAMPLES)
    sizes = [path.stat().st_size for path in prepared.files if path.suffix in (".jpg", ".JPEG")]
    assert len(sizes) == SAMPLES == len(data_set.open(prepared.directory))
    # The mean of 120 draws with a deviation of 40 % is off by 3.7 % at one sigma.
    assert np.mean(sizes) == pytest.approx(mean_bytes, rel=0.15)
    assert 0.25 < np.std(sizes) / np.mean(sizes) < 0.55
    assert prepared.bytes >= sum(sizes)


@WRITTEN
def test_a_written_picture_depends_on_seed_and_index_alone(prepare_samples, data_set, mean_bytes):
    def read(samples, seed):
        pictures = [path for path in prepare_samples(data_set, samples, seed).files if path.suffix in (".jpg", ".JPEG")]
        return {path.name: path.read_bytes() for path in pictures}

    few, many, others = read(4, 0), read(SAMPLES, 0), read(4, 1)
    assert len(few) == 4
    assert few.items() <= many.items()
    assert not few.items() & others.items()


@WRITTEN
def test_samples_are_cheap_to_send_to_a_worker(prepare_samples, data_set, mean_bytes):
    samples = data_set.open(prepare_samples(data_set, SAMPLES).directory)
    content = pickle.dumps(samples)
    assert len(content) < 300 * SAMPLES
    assert pickle.loads(content)[3][0].tobytes() == samples[3][0].tobytes()


def test_colours_of_written_landmarks_tell_the_class(prepare_samples):
    samples = GLD23K.open(prepare_samples(GLD23K, SAMPLES).directory)
    pictures = [samples[index] for index in range(60)]
    assert {picture.size for picture, _ in pictures[:10]} == {(800, 600)}
    assert all(0 <= label < 203 for _, label in pictures)
    colours = np.array(
        [np.asarray(picture.convert("YCbCr").resize((8, 6)))[..., 1:].ravel() for picture, _ in pictures]
    )
    distance = np.linalg.norm(colours[:, np.newaxis].astype(float) - colours, axis=2)
    same = np.equal.outer(*[[label for _, label in pictures]] * 2) & ~np.eye(60, dtype=bool)
    different = ~np.equal.outer(*[[label for _, label in pictures]] * 2)
    assert same.any()
    assert distance[same].max() < distance[different].min()


def test_written_objects_lie_inside_their_pictures_and_list_them_as_they_are(prepare_samples):
    prepared = prepare_samples(COCO, SAMPLES)
    samples = COCO.open(prepared.directory)
    listed = json.loads(prepared.files[0].read_text())
    counts = []
    for index, image in zip(range(30), listed["images"]):
        sample = samples[index]
        assert sample.picture.size == (image["width"], image["height"])
        assert (sample.boxes[:, :2] >= 0).all()
        assert (sample.boxes[:, 2:] > 0).all()
        assert (sample.boxes[:, :2] + sample.boxes[:, 2:] <= np.array(sample.picture.size) + 0.05).all()
        assert ((sample.classes >= 0) & (sample.classes < 80)).all()
        counts.append(len(sample.classes))
    assert 4 < np.mean(counts) < 11
