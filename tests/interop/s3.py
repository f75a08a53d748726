"""An S3 server for s3.sh: moto's, which checks signatures and policies, with a
data set that boto3 has put into it.

s3.py SET ODD FOLDER puts the files of SET into s3://sets/c4 and those of ODD
under a key with odd characters, s3://odd.bucket/a b+c=(1)/é~; writes into FOLDER
port, id and secret; answers each third request for a shard with 503 while
FOLDER/busy is there.
"""

import itertools
import os
import sys
import threading
import urllib.request

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

POLICY = """{"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}"""
BUSY = b"<Error><Code>SlowDown</Code><Message>Reduce your rate.</Message></Error>"


def faults(app, folder):
    count = itertools.count(1)

    def serve(environ, start):
        busy = os.path.exists(os.path.join(folder, "busy"))
        if busy and "shard" in environ["PATH_INFO"] and next(count) % 3 == 0:
            start("503 Slow Down", [("Content-Length", str(len(BUSY)))])
            return [BUSY]
        return app(environ, start)

    return serve


def main(whole, odd, folder):
    os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "1000000"
    app = faults(DomainDispatcherApplication(create_backend_app), folder)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    about = {
        "endpoint_url": address,
        "region_name": "us-east-1",
        "aws_access_key_id": "any",
        "aws_secret_access_key": "any",
    }
    s3 = boto3.client("s3", **about)
    for bucket, prefix, files in (
        ("sets", "c4", whole),
        ("odd.bucket", "a b+c=(1)/é~", odd),
    ):
        s3.create_bucket(Bucket=bucket)
        for name in os.listdir(files):
            s3.upload_file(os.path.join(files, name), bucket, f"{prefix}/{name}")
    iam = boto3.client("iam", **about)
    iam.create_user(UserName="trainer")
    iam.put_user_policy(
        UserName="trainer", PolicyName="all", PolicyDocument=POLICY
    )
    key = iam.create_access_key(UserName="trainer")["AccessKey"]
    request = urllib.request.Request(
        address + "/moto-api/reset-auth",
        data=b"0",
        headers={"Content-Type": "text/plain"},
    )
    urllib.request.urlopen(request).close()
    for name, text in (
        ("id", key["AccessKeyId"]),
        ("secret", key["SecretAccessKey"]),
        ("port", str(server.server_port)),
    ):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    thread.join()


main(*sys.argv[1:])
