"""A real S3 server of this machine's own, on a folder: `make engines` brings it."""

from tests.object_server import ObjectServer

KEY_ID, SECRET = "clicktower-tests", "a-secret-that-no-file-may-hold"


class S3Server(ObjectServer):
    program_name, package, bucket = "s3-server", "s3fs", "s3://bucket"

    def environment_at(self, address: str) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": f"http://{address}",
            "AWS_ALLOW_HTTP": "true",  # for Delta's client, which speaks to others by https alone
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def arguments(self) -> list[str]:
        return ["--port", self.address, "posix", str(self.folder / "data")]

    def environment_of_program(self) -> dict[str, str]:
        return {"ROOT_ACCESS_KEY": KEY_ID, "ROOT_SECRET_KEY": SECRET}
