from experts.host.app import serve_expert

if __name__ == "__main__":
    serve_expert("tests.bench.bulk.file_expert")
