# Training on NVIDIA GPUs. CUDA's libraries come with the wheels and nothing is compiled, so the small base will do.
#   docker build -t real . && docker run --gpus all --ipc host -v "$PWD:/work" real real-openrlhf doctor
#   apptainer build real.sif docker-daemon://real:latest && apptainer exec --nv real.sif real-openrlhf doctor
FROM nvidia/cuda:13.0.0-base-ubuntu24.04

# gcc and Python's headers: Triton compiles what starts its kernels. g++: DeepSpeed's Adam for --ds.adam_offload
RUN apt-get update && \
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends gcc g++ python3.12-dev python3.12-venv && \
    rm -rf /var/lib/apt/lists/*

COPY . /opt/real-openrlhf
# The GPUs are there when a container starts, not while the image is built.
RUN REAL_GPU_ELSEWHERE=1 REAL_PYTHON=python3.12 REAL_VENV=/opt/venv \
    bash /opt/real-openrlhf/examples/scripts/setup_env.sh gpu

ENV PATH=/opt/venv/bin:$PATH
WORKDIR /work
