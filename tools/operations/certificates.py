"""A certificate that ends soon, from the CA of `divvyctl certs`."""
import datetime
import os
import subprocess

from . import common

_CONFIG = """[ca]
default_ca = job
[job]
database = {folder}/index.txt
serial = {folder}/serial
new_certs_dir = {folder}
default_md = sha256
policy = any
copy_extensions = copy
unique_subject = no
[any]
commonName = optional
"""


def _openssl(*words):
    subprocess.run(["openssl", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def replace_by_short_one(certs, name, minutes):
    """Replaces NAME.pem by one with the same key and names that ends in so many minutes."""
    now = datetime.datetime.now(datetime.timezone.utc)
    pair = os.path.join(certs, name)
    with common.scratch() as folder:
        common.write(os.path.join(folder, "index.txt"), "")
        common.write(os.path.join(folder, "serial"), "7001")
        config, request = os.path.join(folder, "ca.conf"), os.path.join(folder, "request.pem")
        common.write(config, _CONFIG.format(folder=folder))
        _openssl("x509", "-x509toreq", "-copy_extensions", "copy", "-in", pair + ".pem", "-signkey", pair + ".key", "-out", request)
        _openssl("ca", "-batch", "-notext", "-config", config, "-cert", os.path.join(certs, "ca.pem"), "-keyfile", os.path.join(certs, "ca.key"),
                 "-startdate", (now - datetime.timedelta(minutes=1)).strftime("%y%m%d%H%M%SZ"),
                 "-enddate", (now + datetime.timedelta(minutes=minutes)).strftime("%y%m%d%H%M%SZ"), "-in", request, "-out", pair + ".pem")
