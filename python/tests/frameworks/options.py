"""What becomes of the options of frameworks where rowdex has the rows, for test_options.py.

Every option is named here or by a case of options_jobs.py: a new one of a newer version fails the test until somebody
has looked at it. ``LISTED`` are those without a case, by the reason; ``ELSEWHERE`` those that another test shows.
"""

from __future__ import annotations

MODEL = "the model, its optimizer and its loss"
WHEN = "when something is done, and for how long"
REPORTS = "what is told, logged or uploaded"
CHECKPOINTS = "which checkpoints are kept, and where"
MACHINE = "devices and processes: rank and world size are known when loaders are made"
OUTPUTS = "what becomes of a model's outputs, after the batch"
SCRIPTS = "read by scripts alone"
TOKENIZER = "of the tokenizer, which TRL sets up; the data_collator uses it"

LISTED = {
    "TrainingArguments": {
        MODEL: "learning_rate lr_scheduler_type lr_scheduler_kwargs warmup_steps optim optim_args weight_decay "
        "adam_beta1 adam_beta2 adam_epsilon optim_target_modules average_tokens_across_devices max_grad_norm bf16 fp16 "
        "label_smoothing_factor bf16_full_eval fp16_full_eval tf32 activation_checkpointing "
        "activation_checkpointing_kwargs gradient_checkpointing gradient_checkpointing_kwargs torch_compile "
        "torch_compile_backend torch_compile_mode use_liger_kernel liger_kernel_config use_cache neftune_noise_alpha "
        "torch_empty_cache_steps fsdp fsdp_config deepspeed",
        WHEN: "eval_strategy eval_steps eval_delay eval_on_start",
        REPORTS: "logging_strategy logging_steps logging_first_step log_on_each_node logging_nan_inf_filter log_level "
        "log_level_replica disable_tqdm report_to run_name project trackio_space_id trackio_bucket_id debug "
        "trackio_static_space_id include_num_input_tokens_seen skip_memory_metrics push_to_hub hub_token "
        "hub_private_repo hub_model_id hub_strategy hub_always_push hub_revision",
        CHECKPOINTS: "output_dir save_only_model save_strategy save_steps save_on_each_node save_total_limit "
        "enable_jit_checkpoint load_best_model_at_end metric_for_best_model greater_is_better "
        "restore_callback_states_from_checkpoint",
        MACHINE: "use_cpu local_rank ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers "
        "ddp_static_graph ddp_backend ddp_timeout full_determinism",
        OUTPUTS: "prediction_loss_only eval_do_concat_batches eval_use_gather_object eval_accumulation_steps "
        "include_for_metrics batch_eval_metrics",
        SCRIPTS: "do_train do_eval do_predict resume_from_checkpoint",
        "of group_by_length and batch_rebalance, which are refused": "length_column_name",
        "walked below, as AcceleratorConfig": "accelerator_config",
    },
    "AcceleratorConfig": {
        "of Accelerate's own sampler, which is not there: rowdex's has a seed in any case": "use_seedable_sampler",
        MODEL: "gradient_accumulation_kwargs",
        MACHINE: "use_configured_state",
    },
    "Trainer": {
        MODEL: "model model_init compute_loss_func optimizers optimizer_cls_and_kwargs",
        "walked as TrainingArguments": "args",
        OUTPUTS: "compute_metrics preprocess_logits_for_metrics",
        REPORTS: "callbacks",
    },
    "SFTConfig": {
        MODEL: "model_init_kwargs trust_remote_code router_aux_loss_coef loss_type activation_offloading",
        TOKENIZER: "chat_template_path eos_token pad_token",
        "of packing, which is refused": "packing_strategy",
    },
    "SFTTrainer": {
        MODEL: "model compute_loss_func optimizers optimizer_cls_and_kwargs quantization_config peft_config",
        "walked as SFTConfig": "args",
        OUTPUTS: "compute_metrics preprocess_logits_for_metrics",
        REPORTS: "callbacks",
        TOKENIZER: "processing_class",
    },
    "lightning.Trainer": {
        MODEL: "precision gradient_clip_val gradient_clip_algorithm accumulate_grad_batches deterministic benchmark "
        "inference_mode detect_anomaly sync_batchnorm",
        WHEN: "min_epochs min_steps max_time",
        REPORTS: "logger callbacks log_every_n_steps enable_progress_bar enable_model_summary profiler "
        "enable_autolog_hparams",
        CHECKPOINTS: "enable_checkpointing default_root_dir model_registry",
        MACHINE: "accelerator num_nodes plugins",
        "turns off what is told, and changes no batch": "barebones",
    },
    "Accelerator": {
        MODEL: "mixed_precision gradient_accumulation_plugin fsdp_plugin deepspeed_plugin deepspeed_plugins "
        "torch_tp_plugin megatron_lm_plugin step_scheduler_with_optimizer kwargs_handlers dynamo_backend dynamo_plugin",
        REPORTS: "log_with",
        CHECKPOINTS: "project_dir project_config",
        MACHINE: "cpu",
        "walked as DataLoaderConfiguration": "dataloader_config split_batches",
        "of Accelerate's own samplers: rowdex's order is the same on all ranks by its seed": "rng_types",
    },
    "DataLoaderConfiguration": {},
}

LAUNCHED = (
    "test_lightning.test_a_loader_made_before_lightning_starts_the_ranks_is_an_error_and_a_module_is_none"
)
ELSEWHERE = {
    "TrainingArguments": {
        "per_device_eval_batch_size": "test_transformers.test_predictions_are_of_every_row_in_order",
    },
    "Trainer": {"data_collator": "test_transformers.test_predictions_are_of_every_row_in_order"},
    "lightning.Trainer": {
        "devices": LAUNCHED,
        "strategy": LAUNCHED,
        "overfit_batches": "test_lightning.test_batches_to_overfit_are_the_same_ones_in_every_epoch",
        "use_distributed_sampler": "test_lightning.test_a_trainer_takes_the_batches_of_the_plain_loader",
    },
    "Accelerator": {
        "gradient_accumulation_steps": "test_accelerate.test_gradients_are_stepped_with_at_the_end_of_an_epoch",
    },
    "DataLoaderConfiguration": {
        "split_batches": "test_accelerate.test_a_global_sampler_that_is_not_dealt_as_it_was_told_is_an_error",
        "dispatch_batches": "test_accelerate.test_what_would_be_sharded_twice_is_an_error_that_says_what_to_write",
        "even_batches": "test_accelerate.test_prepared_loaders_serve_the_batches_of_the_plain_one",
    },
}
