//! Tests that run on the CPU and on the first GPU. Without one the latter count as ignored, and say why.

use libtest_mimic::{Completion, Trial};
use planish::Device;

pub(crate) fn on_cpu(name: &str, test: impl FnOnce(Device) + Send + 'static) -> Trial {
    Trial::test(format!("cpu::{name}"), move || {
        test(Device::Cpu);
        Ok(())
    })
}

pub(crate) fn on_gpu(name: &str, test: impl FnOnce(Device) + Send + 'static) -> Trial {
    Trial::ignorable_test(format!("cuda::{name}"), move || match Device::Cuda(0).describe() {
        Ok(_) => {
            test(Device::Cuda(0));
            Ok(Completion::Completed)
        }
        Err(why) => Ok(Completion::ignored_with(why)),
    })
}
