# Flags of a run of SmolLM2 on its questions, for a script that has the task's folder in $task. Answers are short, so most
# of the time goes into prompts. 3e-5 was the best of three rates for REAL and for GRPO (examples/results/archive).
smollm2=(--model "$task/model" --data "$task/train.jsonl" --eval.dataset "$task/eval.jsonl"
    --reward.remote_url examples/gym/gym_reward.py --data.apply_chat_template
    --rollout.batch_size 8 --train.batch_size 32 --rollout.max_new_tokens 16 --data.max_len 160
    --rollout.temperature 1.0 --eval.temperature 1.0 --eval.n_samples_per_prompt 2 --eval.steps 10
    --actor.adam.lr 3e-5 --max-steps 30 --ckpt.save_steps 10 --ds.zero_stage 2)
smollm2_cpu=(--train.micro_batch_size 32 --rollout.micro_batch_size 32 --ds.attn_implementation sdpa)
