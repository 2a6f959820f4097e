"""Make the two hospitals' files: invented patients, drawn from a known model.

systolic_pressure = 120 + 0.5 (age - 50) + 1.0 (body_mass_index - 27)
                        + 2.0 (sodium_intake - 3.5) + noise, standard deviation 10
"""

import csv
from pathlib import Path

import numpy as np

PATIENTS = 400
HEADER = ("id", "age", "body_mass_index", "sodium_intake", "systolic_pressure")


def patients(seed: int) -> np.ndarray:
    """Return one hospital's invented patients, shape (400, 4)."""
    generator = np.random.default_rng(seed)
    age = generator.uniform(25, 80, PATIENTS)
    body_mass_index = generator.normal(27, 4, PATIENTS)
    sodium_intake = generator.normal(3.5, 1, PATIENTS)
    pressure = 120 + 0.5 * (age - 50) + (body_mass_index - 27) + 2 * (sodium_intake - 3.5)
    pressure += generator.normal(0, 10, PATIENTS)
    return np.column_stack([age, body_mass_index, sodium_intake, pressure]).round(1)


def main() -> None:
    """Write both files beside this one."""
    for seed, name in enumerate(("hospital-a.csv", "hospital-b.csv")):
        with (Path(__file__).parent / name).open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(HEADER)
            rows = patients(seed).tolist()
            writer.writerows([f"patient-{place:03}", *row] for place, row in enumerate(rows))


if __name__ == "__main__":
    main()
