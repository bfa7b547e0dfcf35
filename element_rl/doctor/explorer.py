"""What `element explore` would meet on an environment: does it take it, and can the reward's
entropy tell episodes apart?"""

from element_rl.doctor.findings import Finding
from element_rl.doctor.trial import Trial, TrialSettings
from element_rl.envs.make import describe
from element_rl.envs.notes import coverage_note
from element_rl.envs.robots import units_fit
from element_rl.rewards.entropy_range import advice, seen_episodes, sentence
from element_rl.rewards.interface import entropy_kernel


def check_explore(settings: TrialSettings) -> Finding:
    """`element explore` takes every environment but a few."""
    try:
        spec = describe(settings.env, **settings.env_options)
    except ValueError as error:
        advised = (
            "The bonus itself works with other learners (docs/sb3.md, docs/wrapper.md). The checks "
            "below are of the bonus alone."
        )
        return Finding("explore", "warn", f"element explore does not take it. {error}", advised)
    seen = f"observations of {spec.observation_dim} numbers"
    if spec.sees_frames:
        seen = f"frames of {spec.frame_shape[0]} × {spec.frame_shape[1]} pixels, on policy"
    numbers = f"{spec.action_dim} choices" if spec.chooses else f"actions of {spec.action_dim}"
    sizes = f"{seen}, {numbers}"
    # a run has the position that the user names, or that is known or found
    note = "" if settings.position is not None else coverage_note(spec).replace("\n", " ")
    return Finding("explore", "ok", f"element explore takes it: {sizes}. {note}".rstrip())


def check_entropy(trial: Trial, explored: bool) -> Finding | None:
    """The reward's own entropy is neither blind nor saturated; None for rewards that have no
    bandwidth."""
    kernel = entropy_kernel(trial.bonus.rewarder)
    seen = None if kernel is None else seen_episodes([trial.longest_episode()], kernel)
    if seen is None:
        return None
    values = seen._asdict()
    if wrong := sentence(seen):
        advised = advice(seen, as_options=not explored)
        if explored and not units_fit(trial.settings.env):
            advised = (
                "element explore calibrates its states here, so that bandwidth 1 fits "
                "(--state-units); a bonus in your own loop compares raw ones: "
                + advice(seen, as_options=True)
            )
        return Finding("entropy", "warn", wrong, advised, values)
    bits = f"{seen.bits:.2g} of {seen.ceiling:.1f} bits at bandwidth {seen.bandwidth:g}"
    well = f"Episodic entropy tells states apart: {bits}."
    return Finding("entropy", "ok", well, values=values)
