import os
import subprocess
import sys


def test_figures_need_no_screen_and_no_pyplot():
    code = (
        "import sys, io; from nescio import plots; f = plots.histogram({'a': [1.0, 2.0]}); "
        "f.savefig(io.BytesIO(), format='png'); assert 'matplotlib.pyplot' not in sys.modules"
    )
    without = {name: value for name, value in os.environ.items() if "DISPLAY" not in name}
    subprocess.run([sys.executable, "-c", code], check=True, env=without | {"PATH": "", "MPLBACKEND": "TkAgg"})
