//! Cloud errors: many codes, few classes. Code that decides asks for the class and never reads text.

use std::time::Duration;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorClass {
    /// The instance or resource does not exist (any more).
    NotFound,
    /// No capacity for any offering that the request allows: plan again without them.
    InsufficientCapacity,
    /// A quota of the account is used up.
    Quota,
    /// The cloud asks us to slow down.
    Throttled,
    /// Permissions are missing.
    Unauthorized,
    /// The node class cannot be used as it is.
    ClassNotReady,
    /// The request itself is wrong; repeating it changes nothing.
    Invalid,
    /// Time-out, connection or server error: try again later.
    Transient,
}

impl ErrorClass {
    /// The class of an EC2 error code. A code that is not listed may pass: it is tried again later.
    pub fn of_code(code: &str) -> Self {
        match code {
            "InvalidInstanceID.NotFound"
            | "InvalidLaunchTemplateId.NotFound"
            | "InvalidLaunchTemplateName.NotFoundException"
            | "InvalidCapacityReservationId.NotFound"
            | "NoSuchEntity"
            | "ParameterNotFound"
            | "QueueDoesNotExist" => Self::NotFound,
            "InsufficientInstanceCapacity"
            | "InsufficientFreeAddressesInSubnet"
            | "UnfulfillableCapacity"
            | "Unsupported"
            | "ReservationCapacityExceeded"
            | "SpotMaxPriceTooLow"
            | "InvalidCapacityReservationState.Unavailable" => Self::InsufficientCapacity,
            "VcpuLimitExceeded" | "MaxSpotInstanceCountExceeded" | "MaxFleetCountExceeded" => {
                Self::Quota
            }
            "RequestLimitExceeded" => Self::Throttled,
            "UnauthorizedOperation"
            | "AccessDenied"
            | "AuthFailure"
            | "AuthFailure.ServiceLinkedRoleCreationNotPermitted" => Self::Unauthorized,
            "IdempotentInstanceTerminated"
            | "InvalidParameter"
            | "InvalidParameterValue"
            | "InvalidAMIID.Malformed"
            | "InvalidAMIID.NotFound" => Self::Invalid,
            _ => Self::Transient,
        }
    }
}

/// An error of a cloud call.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{action}: {code}: {message}")]
pub struct CloudError {
    /// What was being done, in lower case.
    pub action: &'static str,
    /// Class that decides what happens next.
    pub class: ErrorClass,
    /// The provider's code or condition reason, e.g. `InsufficientInstanceCapacity`.
    pub code: String,
    /// The provider's text.
    pub message: String,
    /// How long the provider wants us to wait, when it says so.
    pub retry_after: Option<Duration>,
}

impl CloudError {
    /// Builds an error.
    pub fn new(
        action: &'static str,
        class: ErrorClass,
        code: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            action,
            class,
            code: code.into(),
            message: message.into(),
            retry_after: None,
        }
    }

    /// Whether the thing is gone.
    pub fn is_not_found(&self) -> bool {
        self.class == ErrorClass::NotFound
    }

    /// Whether another offering may do.
    pub fn is_capacity(&self) -> bool {
        matches!(
            self.class,
            ErrorClass::InsufficientCapacity | ErrorClass::Quota
        )
    }

    /// Whether the same call may work later.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.class,
            ErrorClass::Throttled | ErrorClass::Transient | ErrorClass::Unauthorized
        )
    }
}
