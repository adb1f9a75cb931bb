# brainweave as a BIDS App, from the wheel in dist/:
#   make container
#   docker run --rm -v /data:/data:ro -v /out:/out brainweave /data /out participant
#   apptainer build brainweave.sif docker-daemon://brainweave:latest
#   apptainer run --cleanenv brainweave.sif /data /out participant
FROM python:3.13-slim
LABEL org.opencontainers.image.title="brainweave" \
      org.opencontainers.image.description="Functional alignment of fMRI data, as a BIDS App" \
      org.opencontainers.image.source="https://github.com/brainweave/brainweave" \
      org.opencontainers.image.licenses="BSD-3-Clause"
# every dependency, and its range, is that of the wheel
COPY dist/*.whl /wheels/
RUN pip install --no-cache-dir /wheels/*.whl && rm -r /wheels
# containers run with any user id and, under Apptainer, on a read-only disk
ENV HOME=/tmp \
    MPLCONFIGDIR=/tmp/matplotlib \
    OMP_NUM_THREADS=1
RUN useradd --create-home brainweave
USER brainweave
WORKDIR /tmp
# other commands: docker run --entrypoint brainweave brainweave compare --help
ENTRYPOINT ["brainweave", "run"]
CMD ["--help"]
