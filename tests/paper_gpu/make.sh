#!/usr/bin/env bash
# Paper cards for an environment for GPUs: bash tests/paper_gpu/make.sh VENV OUT, then `. OUT/env`. In seconds, by gcc.
# Every CUDA library that the wheels ask for, with the functions they ask for: ours, and for the others empty ones that
# succeed (NCCL's and NVML's fail). LD_PRELOAD puts them before the wheels' own. VENV gets one file, paper_gpu.pth.
set -euo pipefail
venv=$1 out=$2 here=$(cd "$(dirname "$0")" && pwd)
site=$(echo "$venv"/lib/python3*/site-packages)
mkdir -p "$out/lib" "$out/bin"
find "$site"/torch/lib "$site"/vllm "$site"/torchvision "$site"/triton/_C "$site"/bitsandbytes -name '*.so' -print0 |
    xargs -0 nm -D --undefined-only 2>/dev/null | sed -n 's/.* U \([A-Za-z_0-9]*\)\(@.*\)\?$/\1/p' | sort -u >"$out/wanted"
# what is asked for by name, at run time
printf '%s\n' cuCtxGetFlags cuCtxSetCurrent cuCtxSynchronize cuStreamSynchronize cuLaunchKernel cuLaunchKernelEx cuInit \
    cuLaunchCooperativeKernel cuFuncSetAttribute cuFuncSetCacheConfig cuModuleUnload cuMemSetAccess cuTensorMapEncodeTiled \
    cuStreamGetCtx cuStreamWriteValue32_v2 cuMemExportToShareableHandle cuMulticastGetGranularity cuDevicePrimaryCtxRelease_v2 \
    cuKernelSetAttribute cuEventRecord cuEventCreate cuEventQuery cuMemRetainAllocationHandle cuMemImportFromShareableHandle \
    cuMemGetAllocationPropertiesFromHandle cuDevicePrimaryCtxSetFlags_v2 cuCtxSetLimit cuCtxGetLimit cuDeviceGetPCIBusId \
    ncclSend ncclRecv ncclAlltoAll ncclGather ncclScatter ncclMemAlloc ncclMemFree ncclRedOpCreatePreMulSum ncclRedOpDestroy \
    ncclCommRegister ncclCommDeregister ncclCommWindowRegister ncclCommWindowDeregister ncclCommSuspend ncclCommResume \
    ncclCommCuDevice ncclGroupSimulateEnd ncclCommGetUniqueId >>"$out/wanted"
grep -ohE '\b(cuda|nccl)[A-Z][A-Za-z0-9]+' "$site"/vllm/distributed/device_communicators/{cuda,pynccl}_wrapper.py >>"$out/wanted"
grep -aohE 'nvml[A-Z][A-Za-z0-9_]+' "$site"/torch/lib/libc10_cuda.so >>"$out/wanted"
preload=
library() { # library NAME PATTERN [SOURCE FLAGS...]
    local name=$1 pattern=$2 source=${3:-} stem=${1%%.so*} flags=("${@:4}") version=()
    [[ $name == libnccl* || $name == libcuda.so* || $name == libnvidia* ]] || { # the others' symbols have versions
        echo "$([[ $name == *nvshmem* ]] && echo NVSHMEM || echo "$name") { global: *; };" >"$out/$stem.map"
        version=("-Wl,--version-script=$out/$stem.map")
    }
    : >"$out/ours"
    if [ -n "$source" ]; then
        gcc -O2 -w -shared -fPIC "${flags[@]}" -o "$out/first.so" "$source" -lpthread -ldl
        nm -D --defined-only "$out/first.so" | awk '{ sub(/@.*/, "", $3); print $3 }' | sort -u >"$out/ours"
    fi
    { grep -E "$pattern" "$out/wanted" || true; } | sort -u | comm -23 - "$out/ours" |
        sed "s/.*/int &(void) { return $(case $name in libnccl*) echo 4 ;; libnvidia*) echo 3 ;; *) echo 0 ;; esac); }/" >"$out/$stem.c"
    gcc -O2 -w -shared -fPIC "${flags[@]}" "${version[@]}" -Wl,-soname,"$name" -o "$out/lib/$name" $source "$out/$stem.c" -lpthread -ldl
    preload+=${preload:+:}$out/lib/$name
    echo "$name: $(wc -l <"$out/ours") ours, $(wc -l <"$out/$stem.c") empty"
}
library libcuda.so.1 '^cu[A-Z][a-z]' "$here/cuda.c" -DDRIVER
library libcudart.so.13 '^(cuda[A-Z]|__cuda)' "$here/cuda.c" -DRUNTIME -I"$site/nvidia/cu13/include" "$out/lib/libcuda.so.1"
library libcublas.so.13 '^cublas([A-KM-Z]|L[^t])' "$here/cards.c" -DBLAS
library libcublasLt.so.13 '^cublasLt' "$here/cards.c" -DLT
library libnccl.so.2 '^p?nccl[A-Z]' "$here/nccl.c"
library libnvidia-ml.so.1 '^nvml[A-Z]' "$here/cards.c" -DNVML "$out/lib/libcuda.so.1"
library libcusparse.so.12 '^cusparse[A-KM-Z]'
library libcusparseLt.so.0 '^cusparseLt'
library libcusolver.so.12 '^cusolver'
library libcufft.so.12 '^cufft'
library libcurand.so.10 '^curand'
library libcufile.so.0 '^cuFile'
library libcudnn.so.9 '^cudnn'
library libnvrtc.so.13 '^nvrtc'
library libnvshmem_host.so.3 'nvshmem'
gcc -O2 -w -DSMI -o "$out/bin/nvidia-smi" "$here/cards.c" "$out/lib/libcuda.so.1"
# setup_env.sh takes PYTHONPATH away
echo "import os, sys; 'PAPER_COMPUTE' in os.environ and (sys.path.append('$here'), __import__('paper'))" >"$site/paper_gpu.pth"
cat >"$out/env" <<END
export LD_PRELOAD=$preload LD_LIBRARY_PATH=$out/lib VLLM_NCCL_SO_PATH=$out/lib/libnccl.so.2 VLLM_CUDART_SO_PATH=$out/lib/libcudart.so.13 TRITON_LIBCUDA_PATH=$out/lib
export PATH=$out/bin:$venv/bin:\$PATH OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 PAPER_COMPUTE=1 TORCHDYNAMO_DISABLE=1
END
