# brainweave as a BIDS App:
#   docker build -t brainweave .
#   docker run --rm -v /data:/data:ro -v /out:/out brainweave run /data /out participant
#   apptainer build brainweave.sif docker-daemon://brainweave:latest
#   apptainer run --cleanenv brainweave.sif run /data /out participant
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
# every dependency, and its range, is pyproject.toml's alone
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /wheels .

FROM python:3.12-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl && rm -r /wheels
# containers run with any user id and, under Apptainer, on a read-only disk
ENV HOME=/tmp \
    MPLCONFIGDIR=/tmp/matplotlib \
    OMP_NUM_THREADS=1
RUN useradd --create-home brainweave
USER brainweave
WORKDIR /tmp
ENTRYPOINT ["brainweave"]
CMD ["--help"]
